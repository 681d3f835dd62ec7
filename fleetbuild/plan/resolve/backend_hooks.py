"""Ask a build backend for the metadata of a source. Runs in a sandbox, without fleetbuild.

In: the archive, the backend and its path, as arguments. Out: one JSON document on standard output.
"""

import importlib
import json
import os
import shutil
import site
import sys
import zipfile
from pathlib import Path


def main(archive: str, backend: str, backend_path: str) -> None:
    """Print the answers of the hooks, or why they failed."""
    out = os.dup(1)
    os.dup2(2, 1)  # away from what a backend prints
    site.setquit()  # -S left out exit(), which setup.py files call
    try:
        folder = unpack(Path(archive))
        answer = ask(folder, backend, json.loads(backend_path))
    except (Exception, SystemExit) as problem:
        answer = {"problem": f"{type(problem).__name__}: {problem}"}
    with os.fdopen(out, "w") as file:
        json.dump(answer, file)


def unpack(archive: Path) -> Path:
    """Unpack the source here; return its folder."""
    shutil.unpack_archive(archive, "source", "zip" if zipfile.is_zipfile(archive) else "gztar")
    (folder, *others) = Path("source").iterdir()
    return Path("source") if others else folder


def ask(folder: Path, backend: str, backend_path: list[str]) -> dict[str, object]:
    """Return the requirements that the hooks name, and the METADATA that they write."""
    os.chdir(folder)
    sys.path[:1] = [str(Path(each).resolve()) for each in backend_path]
    module, _, attribute = backend.partition(":")
    hooks = importlib.import_module(module)
    for name in filter(None, attribute.split(".")):
        hooks = getattr(hooks, name)
    answer: dict[str, object] = {"build": []}
    if hasattr(hooks, "get_requires_for_build_wheel"):
        answer["build"] = list(map(str, hooks.get_requires_for_build_wheel(None)))
    if not hasattr(hooks, "prepare_metadata_for_build_wheel"):
        return {**answer, "problem": f"{module} tells them only with the whole wheel"}
    try:
        Path("/scratch/metadata").mkdir()
        made = hooks.prepare_metadata_for_build_wheel("/scratch/metadata", None)
        text = Path("/scratch/metadata", made, "METADATA").read_text("utf-8", "replace")
    except (Exception, SystemExit) as problem:
        return {**answer, "problem": f"{type(problem).__name__}: {problem}"}
    return {**answer, "metadata": text}


if __name__ == "__main__":
    main(*sys.argv[1:])
