"""Compiles saxpy.cu with nvcc for the SMs of TORCH_CUDA_ARCH_LIST, as extensions of torch do."""

import os
import re
import shlex
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


def gencode():
    """The flags for "8.6 9.0a+PTX", say: machine code for each SM, and PTX where it says so."""
    wanted = re.split(r"[;\s]+", os.environ.get("TORCH_CUDA_ARCH_LIST", "").strip())
    if wanted == [""]:
        raise SystemExit("TORCH_CUDA_ARCH_LIST must name the SMs: there is no GPU to guess from.")
    flags = []
    for name in wanted:
        match = re.fullmatch(r"(\d+)\.(\d[af]?)(\+PTX)?", name)
        if match is None:
            raise SystemExit(f"Unknown CUDA arch ({name}) or GPU not supported")
        sm = match[1] + match[2]
        flags.append(f"-gencode=arch=compute_{sm},code=sm_{sm}")
        if match[3]:
            flags.append(f"-gencode=arch=compute_{sm},code=compute_{sm}")
    return flags


class Nvcc(build_ext):
    """Compiles and links with nvcc alone."""

    def build_extension(self, extension):
        nvcc = os.environ.get("CUDACXX", "nvcc")
        host = [f"-Xcompiler={flag}" for flag in shlex.split(os.environ.get("CXXFLAGS", ""))]
        library = Path(self.get_ext_fullpath(extension.name))
        library.parent.mkdir(parents=True, exist_ok=True)
        made = Path(self.build_temp, "saxpy.o")
        made.parent.mkdir(parents=True, exist_ok=True)
        self.spawn([nvcc, *gencode(), *host, "-Xcompiler=-fPIC", "-c", "saxpy.cu", "-o", str(made)])
        # PyPI's nvidia packages have lib, where nvcc looks for lib64.
        home = [f"-L{os.environ['CUDA_HOME']}/lib"] if "CUDA_HOME" in os.environ else []
        self.spawn([nvcc, *gencode(), *home, "-shared", str(made), "-o", str(library)])


setup(ext_modules=[Extension("cuda_saxpy._saxpy", ["saxpy.cu"])], cmdclass={"build_ext": Nvcc})
