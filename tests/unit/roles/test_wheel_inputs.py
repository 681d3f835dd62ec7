"""What a recipe brings: files with their folder's name in them, patches, a CUDA toolkit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

SEARCH = os.environ["PATH"]
PATCH = """--- a/src/a.c
+++ b/src/a.c
@@ -1,3 +1,3 @@
 int a(void) {
-  return 1;
+  return 2;
 }
"""


def source(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.c").write_text("int a(void) {\n  return 1;\n}\n")
    return tmp_path / "src" / "a.c"


def test_placeholders_are_replaced_by_the_files_folder(
    wheel_inputs: ModuleType, tmp_path: Path
) -> None:
    folder = str(tmp_path / "files")
    wheel_inputs.lay_files({"old.cmake": ""}, str(tmp_path))
    files = {"a.cmake": "include(@files@/sub/b.cmake)\n", "sub/b.cmake": "{{ kept }} @venv@"}
    wheel_inputs.lay_files(files, str(tmp_path))
    assert Path(folder, "a.cmake").read_text() == f"include({folder}/sub/b.cmake)\n"
    assert Path(folder, "sub", "b.cmake").read_text() == f"{{{{ kept }}}} {tmp_path}/venv"
    assert sorted(os.listdir(folder)) == ["a.cmake", "sub"]


@pytest.mark.parametrize("name", ["../a", "/etc/a", ".", "sub/../../a"])
def test_files_outside_of_the_folder_are_refused(
    wheel_inputs: ModuleType, tmp_path: Path, name: str
) -> None:
    with pytest.raises(wheel_inputs.BuildFailed, match="outside its folder"):
        wheel_inputs.lay_files({name: ""}, str(tmp_path))


def test_patches_are_applied_in_order(wheel_inputs: ModuleType, tmp_path: Path) -> None:
    code = source(tmp_path)
    second = PATCH.replace("return 2", "return 3").replace("return 1", "return 2")
    patches = [{"name": "1.patch", "text": PATCH}, {"name": "2.patch", "text": second}]
    wheel_inputs.apply_patches(patches, str(tmp_path), SEARCH)
    assert "return 3" in code.read_text()


def test_a_patch_that_does_not_apply_is_named(wheel_inputs: ModuleType, tmp_path: Path) -> None:
    source(tmp_path)
    patches = [{"name": "twice.patch", "text": PATCH}] * 2
    with pytest.raises(wheel_inputs.BuildFailed, match=r"twice\.patch does not apply") as caught:
        wheel_inputs.apply_patches(patches, str(tmp_path), SEARCH)
    assert "src/a.c" in str(caught.value)
    assert caught.value.fix == ["correct-patch"]


def test_a_missing_patch_command_is_an_error(wheel_inputs: ModuleType, tmp_path: Path) -> None:
    wheel_inputs.apply_patches([], str(tmp_path), "/nowhere")
    with pytest.raises(wheel_inputs.BuildFailed, match="no patch command"):
        wheel_inputs.apply_patches([{"name": "a", "text": PATCH}], str(tmp_path), "/nowhere")


def toolkit(home: Path, release: str) -> Path:
    nvcc = home / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    nvcc.chmod(0o755)
    return home


def test_a_toolkit_is_found_by_its_nvcc(
    wheel_inputs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    misnamed = toolkit(tmp_path / "cuda-13.0", "12.6")
    right = toolkit(tmp_path / "cuda", "13.0")
    homes = [str(misnamed), str(tmp_path / "absent"), str(right)]
    monkeypatch.setattr(wheel_inputs, "toolkit_homes", lambda *_: homes)
    assert wheel_inputs.find_toolkit("13.0", "") == str(right)
    assert wheel_inputs.find_toolkit("12.6.3", "") == str(misnamed)
    with pytest.raises(wheel_inputs.BuildFailed, match=r"CUDA 11\.8, but only 13\.0 in"):
        wheel_inputs.find_toolkit("11.8", "")
    monkeypatch.setattr(wheel_inputs, "toolkit_homes", lambda *_: [])
    with pytest.raises(wheel_inputs.BuildFailed, match="no CUDA toolkit was found") as caught:
        wheel_inputs.find_toolkit("11.8", "")
    assert caught.value.fix == ["install-cuda", "11.8"]


def test_unpacked_wheels_become_a_toolkit(wheel_inputs: ModuleType, tmp_path: Path) -> None:
    home = toolkit(tmp_path / "nvidia" / "cu13", "13.0")
    (home / "lib").mkdir()
    (home / "lib" / "libcudart.so.13").write_text("library")
    (home / "lib" / "libcudart_static.a").write_text("library")
    for _ in range(2):
        assert wheel_inputs.lay_toolkit("13.0", str(tmp_path)) == str(home)
    assert (home / "lib64" / "libcudart.so").read_text() == "library"
    with pytest.raises(wheel_inputs.BuildFailed, match=r"toolkit 13\.1 hold nvcc 13\.0") as caught:
        wheel_inputs.lay_toolkit("13.1", str(tmp_path))
    assert caught.value.fix == ["plan-or-install-cuda", "13.1"]
    with pytest.raises(wheel_inputs.BuildFailed, match="no nvcc that runs here"):
        wheel_inputs.lay_toolkit("12.9", str(tmp_path / "absent"))


def test_code_that_calls_the_driver_links_to_a_toolkit_from_wheels(
    wheel_inputs: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "include").mkdir()
    header = "#define cuMemAlloc cuMemAlloc_v2\nCUresult CUDAAPI cuInit(unsigned int Flags);\n"
    (tmp_path / "include" / "cuda.h").write_text(header)
    subprocess.run(["gcc", *wheel_inputs.write_driver_stub(str(tmp_path))], check=True)
    code = "int cuInit(unsigned), cuMemAlloc_v2(void *, long);\n"
    code += "int main(void) { return cuInit(0) + cuMemAlloc_v2(0, 1); }\n"
    (tmp_path / "main.c").write_text(code)
    program = tmp_path / "main"
    link = ["gcc", tmp_path / "main.c", "-o", program, f"-L{tmp_path}/lib/stubs", "-lcuda"]
    subprocess.run([*link, "-Wl,--no-undefined"], check=True)
    needs = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True)
    assert "[libcuda.so.1]" in needs.stdout


def test_a_toolkit_in_the_path_is_found(wheel_inputs: ModuleType, tmp_path: Path) -> None:
    home = toolkit(tmp_path / "odd", "9.9")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").symlink_to(home / "bin" / "nvcc")
    homes = wheel_inputs.toolkit_homes("9.9", str(tmp_path / "bin"))
    assert homes[-1] == str(home)
    assert wheel_inputs.find_toolkit("9.9", str(tmp_path / "bin")) in homes


def test_the_toolkit_of_debians_package_is_its_usr(
    wheel_inputs: ModuleType, tmp_path: Path
) -> None:
    """As nvidia-cuda-toolkit 12.4.131~12.4.1-2 lays it: nvcc in /usr/bin is a script."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    real = toolkit(tmp_path / "usr/lib/nvidia-cuda-toolkit", "12.4") / "bin"
    script = f'#!/bin/sh\n\nexport PATH="{real}:$PATH"\nexec {real}/nvcc "$@"\n'
    (tmp_path / "usr/bin/nvcc").write_text(script)
    (tmp_path / "usr/bin/nvcc").chmod(0o755)
    search = f"{tmp_path}/usr/bin:/bin"
    assert wheel_inputs.toolkit_homes("12.4", search)[-1] == str(tmp_path / "usr")
    assert wheel_inputs.toolkit_release(str(tmp_path / "usr/bin/nvcc")) == "12.4"
