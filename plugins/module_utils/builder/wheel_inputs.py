"""A recipe's inputs of a build: files, patches, a CUDA toolkit. Standard library only."""

import glob
import os
import re
import shutil
import subprocess

# Placeholders for folders that only the builder knows.
FILES, VENV = "@files@", "@venv@"
RELEASE = re.compile(r"\brelease (\d+\.\d+)")


KINDS = CODE, MACHINE, INPUT = "code", "machine", "input"


class BuildFailed(Exception):
    """A build problem: a sentence with the reason, advice, and the kind of cause.

    `fix` is advice: an id of plugin_utils/advice.py, and the values of its sentence.

    `kind` is MACHINE if another node may build this wheel, INPUT if a file or image is wrong, else
    CODE.
    """

    def __init__(self, message, fix=(), kind=CODE):
        super().__init__(message)
        self.fix = fix
        self.kind = kind


def filled(values, build):
    """Return the values as text, with the folders of files and environment for placeholders."""
    files, venv = os.path.join(build, "files"), os.path.join(build, "venv")
    return {
        name: str(value).replace(FILES, files).replace(VENV, venv) for name, value in values.items()
    }


def lay_files(files, build):
    """Write the recipe's files into their folder; delete other files there."""
    folder = os.path.join(build, "files")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, text in filled(files, build).items():
        path = os.path.normpath(os.path.join(folder, name))
        if not path.startswith(folder + os.sep):
            raise BuildFailed(
                f"The file {name} would be outside its folder.",
                ["plain-file-name"],
            )
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def apply_patches(patches, source, search):
    """Apply each patch to the source in order; raise with the output of patch if one fails."""
    if patches and shutil.which("patch", path=search) is None:
        raise BuildFailed(
            "The recipe patches the source, but this node has no patch command.",
            ["install-patch"],
        )
    for patch in patches:
        done = subprocess.run(
            # Forward only, and without questions: a patch that is in the source already is old.
            ["patch", "-p1", "--batch", "--forward"],
            cwd=source,
            input=patch["text"].encode("utf-8"),
            env={"PATH": search, "LANG": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode != 0:
            said = " ".join(done.stdout.decode("utf-8", "replace").split())
            raise BuildFailed(
                "The patch {} does not apply to the source: {}".format(patch["name"], said[-600:]),
                ["correct-patch"],
            )


def find_toolkit(version, search):
    """Return the folder of this CUDA toolkit, found by the version that each nvcc prints."""
    found = {}
    for home in toolkit_homes(version, search):
        release = toolkit_release(os.path.join(home, "bin", "nvcc"))
        if release == ".".join(version.split(".")[:2]):
            return home
        if release:
            found[home] = release
    others = ", ".join(f"{release} in {home}" for home, release in sorted(found.items()))
    raise BuildFailed(
        "The wheel has to be built with CUDA {}, but {}.".format(
            version, f"only {others} was found" if found else "no CUDA toolkit was found"
        ),
        ["install-cuda", version],
    )


def lay_toolkit(version, folder):
    """Make NVIDIA's unpacked wheels look like an installed toolkit; return its folder.

    Builds look for lib64 and for libraries without a version, which the wheels leave out.
    """
    found = glob.glob(os.path.join(folder, "nvidia", "cu*", "bin", "nvcc"))
    home = os.path.dirname(os.path.dirname(found[0])) if found else ""
    release = toolkit_release(found[0]) if found else None
    if release != ".".join(version.split(".")[:2]):
        raise BuildFailed(
            "The wheels of the CUDA toolkit {} hold {}.".format(
                version, f"nvcc {release}" if release else "no nvcc that runs here"
            ),
            ["plan-or-install-cuda", version],
        )
    for library in sorted(glob.glob(os.path.join(home, "lib", "lib*.so.*"))):
        plain = library.partition(".so.")[0] + ".so"
        if not os.path.exists(plain):
            os.symlink(os.path.basename(library), plain)
    if not os.path.exists(os.path.join(home, "lib64")):
        os.symlink("lib", os.path.join(home, "lib64"))
    return home


def write_driver_stub(home):
    """Write the source of a libcuda.so to link to; return the compiler's arguments for it.

    An installed toolkit has this library, the wheels do not, and nodes have the driver's own. It
    exports every function that cuda.h names, and none of them does anything.
    """
    header = os.path.join(home, "include", "cuda.h")
    if not os.path.isfile(header):
        raise BuildFailed("The wheels of the CUDA toolkit lack cuda.h.", ["plan"])
    with open(header, encoding="utf-8", errors="replace") as file:
        names = sorted(set(re.findall(r"\bcu[A-Z]\w*", file.read())))
    folder = os.path.join(home, "lib", "stubs")
    os.makedirs(folder, exist_ok=True)
    source, library = os.path.join(folder, "cuda.c"), os.path.join(folder, "libcuda.so")
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(f"void {name}(void) {{}}\n" for name in names)
    return ["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o", library, source]


def toolkit_homes(version, search):
    """Yield the possible folders of toolkits, the most likely first, each once."""
    nvcc = shutil.which("nvcc", path=search)
    homes = [f"/usr/local/cuda-{version}", "/usr/local/cuda", *sorted(glob.glob("/opt/cuda*"))]
    homes += [os.path.dirname(os.path.dirname(path)) for path in (nvcc, real(nvcc)) if path]
    return [home for home in dict.fromkeys(homes) if os.path.exists(home + "/bin/nvcc")]


def real(path):
    """Return the target of a link; empty for an empty path."""
    return os.path.realpath(path) if path else None


def toolkit_release(nvcc):
    """Return an nvcc's version, such as 13.0; empty if it does not run."""
    try:
        done = subprocess.run(
            [nvcc, "--version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = RELEASE.search(done.stdout.decode("utf-8", "replace"))
    return match.group(1) if match else None
