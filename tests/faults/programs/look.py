"""Print what a node serves, as JSON: run on the node, with release_files.py beside it.

python3 look.py INSTALL_PATH
"""

import json
import subprocess
import sys
from pathlib import Path

import release_files

root = Path(sys.argv[1])
current = root / "current"


def listed(name):
    folder = root / name
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def lease():
    try:
        return json.loads((root / ".lease").read_text())
    except OSError:
        return {}


def state():
    try:
        manifest = json.loads((current / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        return {"problem": f"manifest: {error}"}
    names = [wheel["package"] for wheel in manifest["wheels"]]
    imports = "\n".join("import " + name for name in names)
    command = [current / "bin/python", "-I", "-c", imports]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    damage = release_files.damage(str(current.resolve()), manifest["files_sha256"], True)
    problem = ran.stderr.strip() if ran.returncode else damage
    return {"verified": manifest["verified"], "packages": names, "problem": problem}


found = {
    "current": current.readlink().name if current.is_symlink() else "",
    "releases": listed("releases"),
    "staging": listed("wheels") + listed(".incoming"),
    "kept": listed(".wheels"),
    "lease": lease(),
    **state(),
}
sys.stdout.write(json.dumps(found) + "\n")
