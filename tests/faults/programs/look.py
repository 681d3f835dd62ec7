"""Print what a node serves, as JSON: run on the node, with release_files.py beside it.

python3 look.py INSTALL_PATH
"""

import json
import os
import subprocess
import sys

import release_files

root = sys.argv[1]
current = os.path.join(root, "current")


def listed(name):
    folder = os.path.join(root, name)
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def lease():
    try:
        with open(os.path.join(root, ".lease"), encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return {}


def state():
    try:
        with open(os.path.join(current, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
    except (OSError, ValueError) as error:
        return {"problem": "manifest: %s" % error}
    names = [wheel["package"] for wheel in manifest["wheels"]]
    imports = ["import " + name for name in names]
    python = os.path.join(current, "bin", "python")
    ran = subprocess.run(
        [python, "-I", "-c", "\n".join(imports)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    damage = release_files.damage(os.path.realpath(current), manifest["files_sha256"], True)
    problem = ran.stdout.decode("utf-8", "replace").strip() if ran.returncode else damage
    return {"verified": manifest["verified"], "packages": names, "problem": problem}


found = {
    "current": os.path.basename(os.readlink(current)) if os.path.islink(current) else "",
    "releases": listed("releases"),
    "staging": listed("wheels"),
    "lease": lease(),
}
found.update(state())
print(json.dumps(found))
