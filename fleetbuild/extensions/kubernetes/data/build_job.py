"""Build one wheel of a plan in a pod: fetch its files by hash, build, and store it whole.

Standard library only; see docs/kubernetes.md of fleetbuild.
"""

import json
import os
import shutil
import sys
import time
import urllib.request
from importlib import import_module
from pathlib import Path
from typing import Any

# This file lies in the package. Not resolved: in a pod, each file is a link into another folder.
sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
builder: Any = import_module("builder.wheel_build")
advice: Any = import_module("builder.advice")


def main(job_file: str, work: str, wheels: str, bases: str, cache: str) -> int:
    """Build the wheel, unless it is already in the claim; return 0 if it is there at the end.

    `wheels` is this Job's own folder of the claim, `bases` has the folders of other Jobs, and
    `cache` what its package's Jobs have compiled.
    """
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    home = Path(wheels)
    if wheel := built(home):
        print(f"{wheel.name} is already in the claim.")
        return 0
    check_writable(home)
    if job["params"]["cache"] != "none":
        check_writable(Path(cache))
    inbox = Path(work, "in")
    inbox.mkdir(parents=True, exist_ok=True)
    for item in job["downloads"]:
        fetch(item, inbox / item["file"])
    against = [wait_for(Path(bases, key), job["patience"]) for key in job["bases"]]
    params = dict(job["params"], dir=work, cache_dir=cache)
    params["jobs"] = job["jobs"].get(os.environ.get("NODE"), params["jobs"])
    params["requirements"] = [copied(base, inbox) for base in against] + params["requirements"]
    print("Building. The log follows at its end.", flush=True)
    status = builder.Build(params).run()
    log = Path(work, "build.log")
    print(
        log.read_text(encoding="utf-8", errors="replace") if log.exists() else "No log was written."
    )
    if status["state"] != "done":
        fix = advice.sentence(status["fix"], params)
        print("\n".join([status["reason"], fix, *status["errors"]]))
        return 1
    hand_over(Path(work, "out", status["file"]), home, status["seconds"])
    print(f"Built {status['file']} in {status['seconds']} s.")
    return 0


def fetch(item: dict[str, str], path: Path) -> None:
    """Download a file and compare its hash."""
    print(f"Fetching {item['url']}", flush=True)
    for wait in (5, 15, None):
        try:
            with urllib.request.urlopen(item["url"], timeout=60) as answer, path.open("wb") as file:
                shutil.copyfileobj(answer, file)
            break
        except OSError as problem:
            if wait is None:
                sys.exit(f"{item['url']} cannot be fetched: {problem}")
            time.sleep(wait)
    if builder.sha256(str(path)) != item["sha256"]:
        sys.exit(f"{item['url']} has another sha256 than planned.")


def built(home: Path) -> "Path | None":
    """Return the wheel in the folder of a Job that has ended, if it is the one that it reports."""
    try:
        about = json.loads((home / "build.json").read_text(encoding="utf-8"))
        wheel = home / Path(about["file"]).name
        return wheel if builder.sha256(str(wheel)) == about["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_writable(folder: Path) -> None:
    """Exit if the Job cannot write into a folder of the claim.

    The kubelet makes the folder as root, with the mode of the volume's root. Volumes without
    fsGroup (NFS, hostPath) leave it to root.
    """
    if not os.access(folder, os.W_OK | os.X_OK):
        user = f"user {os.getuid()} and group {os.getgid()}"
        sys.exit(
            f"This Job cannot write its wheel: {user} may not write its folder of the claim, and "
            "the storage does not apply fsGroup. Run once on the volume's root folder: "
            "chmod -R a+rwX . Then delete this Job and apply it again."
        )


def wait_for(home: Path, patience: float) -> Path:
    """Return a wheel that another Job builds; wait until it is there."""
    deadline = time.time() + patience
    while not (wheel := built(home)):
        if time.time() > deadline:
            sys.exit(f"{home} did not appear within {patience} s: look at the Job that builds it.")
        time.sleep(min(15, patience))
    return wheel


def copied(wheel: Path, inbox: Path) -> dict[str, str]:
    """Return a copy of a wheel as a build requirement."""
    shutil.copy(wheel, inbox)
    return {"path": wheel.name, "sha256": builder.sha256(str(wheel))}


def hand_over(wheel: Path, home: Path, seconds: float) -> None:
    """Copy the wheel into the claim, then the report with its hash, which makes it count."""
    for old in (*home.glob("*.whl"), home / "build.json"):
        old.unlink(missing_ok=True)
    about = {
        "node": os.environ.get("NODE", ""),
        "seconds": seconds,
        "file": wheel.name,
        "sha256": builder.sha256(str(wheel)),
    }
    part = home / ".part"
    shutil.copy(wheel, part)
    part.rename(home / wheel.name)
    part.write_text(json.dumps(about), encoding="utf-8")
    part.rename(home / "build.json")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
