"""What the recipes that come with fleetbuild say, by target and version."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.recipes import (
    FILES,
    VENV,
    Recipe,
    RecipeInput,
    choose_recipe,
    known_recipes,
    patches_for,
    render_checks,
    render_environment,
    render_files,
    render_libraries,
    render_requirements,
    render_requires,
    render_settings,
    render_source,
)
from tests.factories.plans import make_target

RECIPES = known_recipes()


def asked(
    package: str, version: str, isa: str = "avx", *, cuda: str | None = None, sms: str = ""
) -> tuple[Recipe, RecipeInput]:
    target = make_target(isa, "2.28", sms=tuple(sms.split()))
    local = f"{'cu' + cuda.replace('.', '') if cuda else 'cpu'}.{isa}"
    job = RecipeInput(
        package=package,
        version=version,
        wheel_version=f"{version}+{local}",
        target=target,
        cuda=cuda,
        flags="-mtarget",
    )
    return choose_recipe(package, RECIPES), job


def environment(*args: str, **kwargs: str) -> dict[str, str]:
    return render_environment(*asked(*args, **kwargs))


@pytest.mark.parametrize("name", sorted(RECIPES))
@pytest.mark.parametrize("isa", ["x86-64", "avx512", "armv9"])
@pytest.mark.parametrize(("cuda", "sms"), [(None, ""), ("11.8", "3.5"), ("13.0", "8.6 12.0")])
def test_every_recipe_can_be_rendered_for_every_target(
    name: str, isa: str, cuda: str | None, sms: str
) -> None:
    recipe = RECIPES[name]
    package = (*recipe.packages, "any")[0]
    _, job = asked(package, "2.6.0", isa, cuda=cuda, sms=sms)
    for requirement in (*render_requirements(recipe, job), *(render_requires(recipe, job) or ())):
        Requirement(requirement)
    for snippet in render_checks(recipe, job):
        compile(snippet, "<check>", "exec")
    for values in (render_environment, render_settings, render_files):
        assert all(values(recipe, job).values())


def test_torch_gets_its_cpu_levels_from_2_10_on_by_a_toolchain_file() -> None:
    """test_torch_cmake.py asks CMake."""
    old, new = asked("torch", "2.9.1"), asked("torch", "2.10.0")
    given = render_environment(*old)
    assert given["CMAKE_PROJECT_TOP_LEVEL_INCLUDES"] == f"{FILES}/levels.cmake"
    assert "CMAKE_TOOLCHAIN_FILE" not in given
    assert "toolchain.cmake" not in render_files(*old)
    given = render_environment(*new)
    assert given["CMAKE_TOOLCHAIN_FILE"] == f"{FILES}/toolchain.cmake"
    assert "CMAKE_PROJECT_TOP_LEVEL_INCLUDES" not in given


@pytest.mark.parametrize(
    ("isa", "off", "on"),
    [
        ("avx", "CXX_AVX2_FOUND CXX_AVX512_FOUND SLEEF_DISABLE_AVX2 SLEEF_DISABLE_AVX512F", ""),
        ("avx2", "CXX_AVX512_FOUND SLEEF_DISABLE_AVX512F", "CXX_AVX2_FOUND SLEEF_DISABLE_AVX2"),
        ("avx512", "", "CXX_AVX2_FOUND CXX_AVX512_FOUND SLEEF_DISABLE"),
        ("armv8.2", "CXX_SVE256_FOUND", "AVX"),
        ("armv8.4sve", "", "SVE AVX"),
        ("armv9", "CXX_SVE256_FOUND", "AVX"),  # Graviton4's vectors have 128 bits
    ],
)
def test_torchs_levels_above_the_target_are_off(isa: str, off: str, on: str) -> None:
    text = render_files(*asked("torch", "2.13.0", isa))["levels.cmake"]
    for name in off.split():
        assert f"set({name} " in text
    for name in on.split():
        assert f"({name}" not in text


def test_torchs_libraries_are_chosen_by_the_cpus_features() -> None:
    switches = ("USE_FBGEMM", "USE_NNPACK", "USE_MKLDNN", "USE_XNNPACK", "BLAS")
    found = {
        isa: " ".join(environment("torch", "2.13.0", isa)[name] for name in switches)
        for isa in ("x86-64", "avx", "avx2", "armv8.2")
    }
    assert found == {
        "x86-64": "0 0 0 0 MKL",
        "avx": "0 0 1 1 MKL",
        "avx2": "1 1 1 1 MKL",
        "armv8.2": "0 1 1 1 OpenBLAS",
    }
    assert environment("torch", "2.13.0")["USE_STATIC_MKL"] == "1"
    assert not {"USE_STATIC_MKL", "INTEL_MKL_DIR"} & set(environment("torch", "2.13.0", "armv8"))


# Options of torch's CMakeLists.txt (2.0, 2.6, 2.8 and main of 2026) that are on by default and are
# turned off where a library is not found on the machine that builds: what a node would lack. And
# USE_CCACHE, which takes whichever ccache that machine has.
ASKS_THE_BUILDER = "USE_CCACHE USE_MPI USE_NUMA USE_ROCM USE_XPU"
FOR_CUDA = "USE_CUDNN USE_CUSPARSELT USE_CUDSS USE_CUFILE USE_MAGMA USE_NCCL USE_NVSHMEM"


@pytest.mark.parametrize("version", ["2.0.1", "2.6.0", "2.13.0", "2.15.0"])
@pytest.mark.parametrize("isa", ["avx2", "armv8.2"])
def test_every_switch_of_torch_is_set_explicitly(version: str, isa: str) -> None:
    said = environment("torch", version, isa)
    assert [name for name in ASKS_THE_BUILDER.split() if said.get(name) != "0"] == []
    assert {"BLAS", "USE_CUDA", "USE_FBGEMM", "USE_MKLDNN", "USE_NNPACK", "USE_XNNPACK"} <= set(
        said
    )
    said = environment("torch", version, isa, cuda="12.6", sms="8.0")
    assert [name for name in FOR_CUDA.split() if name not in said] == []


@pytest.mark.parametrize(
    ("version", "sms", "listed"),
    [
        ("2.14.1", "10.3", "10.3a"),
        ("2.14.1", "12.1", "12.1a"),
        ("2.14.1", "9.0 10.3 12.1", "9.0;10.3a;12.1a"),
        ("2.14.1", "10.0 10.3", "10.0;10.3"),  # torch adds 10.3a beside 10.0 on its own
        ("2.14.1", "12.0 12.1", "12.0;12.1"),
    ],
)
def test_only_suitable_gpus_get_special_kernels(version: str, sms: str, listed: str) -> None:
    said = environment("torch", version, "avx2", cuda="13.0", sms=sms)
    assert said["TORCH_CUDA_ARCH_LIST"] == listed


@pytest.mark.parametrize(
    ("package", "version", "sms", "listed"),
    [
        ("torch", "2.14.1", "8.6 9.0", "8.6;9.0+PTX"),
        ("torch", "2.14.1", "9.0 12.1", "9.0;12.1a;12.1+PTX"),  # no other SM runs PTX of 12.1a
        ("torchvision", "0.29.0", "8.6 9.0", "8.6;9.0+PTX"),
        ("torchaudio", "2.14.0", "8.6", "8.6+PTX"),
        ("flash-attn", "2.8.3", "8.0 9.0", "8.0;9.0+PTX"),
    ],
)
def test_cuda_ptx_adds_ptx_of_the_newest_sm(
    package: str, version: str, sms: str, listed: str
) -> None:
    recipe, job = asked(package, version, "avx2", cuda="13.0", sms=sms)
    said = render_environment(recipe, _with_ptx(job))
    assert said["TORCH_CUDA_ARCH_LIST"] == listed


def test_cuda_ptx_reaches_cmake() -> None:
    recipe, job = asked("llama-cpp-python", "0.3.9", "avx2", cuda="13.0", sms="8.6 9.0")
    assert "CMAKE_CUDA_ARCHITECTURES='86-real;90-real'" in _cmake(recipe, job)
    # CMake compiles a number without a suffix to machine code and to PTX.
    assert "CMAKE_CUDA_ARCHITECTURES='86-real;90'" in _cmake(recipe, _with_ptx(job))


def _with_ptx(job: RecipeInput) -> RecipeInput:
    target = job.target.model_copy(update={"ptx": job.target.sms[-1]})
    return job.model_copy(update={"target": target})


def _cmake(recipe: Recipe, job: RecipeInput) -> str:
    return render_environment(recipe, job)["CMAKE_ARGS"]


@pytest.mark.parametrize(
    ("cuda", "isa", "published"),
    [("12.0", "avx", True), ("12.2", "armv8.2", False), ("12.3", "armv8.2", True)],
)
def test_a_toolkit_without_wheels_comes_from_the_system(
    cuda: str, isa: str, published: bool
) -> None:
    needs = render_requires(*asked("torch", "2.1.0", isa, cuda=cuda, sms="8.0")) or ()
    assert any("cuda-toolkit" in each for each in needs) is published
    assert "nvidia-nccl-cu12" in needs


def test_a_jetson_uses_its_own_libraries_and_no_nvidia_wheels() -> None:
    recipe, job = asked("torch", "2.13.0", "armv8.2", cuda="12.6", sms="8.7")
    said = render_environment(recipe, job)
    assert (said["USE_CUDA"], said["USE_CUDNN"], said["USE_NCCL"]) == ("1", "0", "0")
    assert not {"USE_SYSTEM_NCCL", "NCCL_LIB_DIR", "CUDNN_LIB_DIR", "LDFLAGS"} & set(said)
    needs = (*(render_requires(recipe, job) or ()), *render_requirements(recipe, job))
    assert not [each for each in needs if "nvidia" in each or "cuda" in each]
    assert "nvidia" not in render_files(recipe, job)["levels.cmake"]


@pytest.mark.parametrize(
    ("version", "cuda", "sms", "cudnn", "soname"),
    [
        ("2.0.1", "11.8", "3.7", "nvidia-cudnn-cu11<8.9.1,>=8.5", "libcudnn.so.8"),
        ("2.2.2", "12.1", "8.6", "nvidia-cudnn-cu12<9,>=8.9", "libcudnn.so.8"),
        ("2.3.1", "11.8", "8.6", "nvidia-cudnn-cu11<9,>=8.5", "libcudnn.so.8"),
        ("2.4.1", "12.4", "8.6", "nvidia-cudnn-cu12<10,>=9", "libcudnn.so.9"),
        ("2.13.0", "13.0", "8.6", "nvidia-cudnn-cu13<10,>=9.12", "libcudnn.so.9"),
    ],
)
def test_torch_gets_a_supported_cudnn(
    version: str, cuda: str, sms: str, cudnn: str, soname: str
) -> None:
    recipe, job = asked("torch", version, "avx2", cuda=cuda, sms=sms)
    assert cudnn in (render_requires(recipe, job) or ())
    assert cudnn in render_requirements(recipe, job)
    assert f"/{soname}\n" in render_files(recipe, job)["levels.cmake"]


@pytest.mark.parametrize("cuda", ["11.7", "11.8"])
def test_nvidias_wheels_of_cuda_11_are_used_if_they_exist(cuda: str) -> None:
    recipe, job = asked("torch", "2.0.1", "avx2", cuda=cuda, sms="7.5")
    said, needs = render_environment(recipe, job), render_requires(recipe, job) or ()
    assert (said["USE_CUDNN"], said["USE_NCCL"]) == ("1", "1")
    assert "nvidia-nccl-cu11" in needs
    assert any("cublas" in each for each in needs)
    assert r"$ORIGIN/../../nvidia/cublas/lib" in said["LDFLAGS"]


@pytest.mark.parametrize("package", ["torchvision", "torchaudio"])
def test_companions_are_built_against_the_torch_of_the_release(package: str) -> None:
    recipe, job = asked(package, "0.28.0", cuda="12.6", sms="8.6")
    assert recipe.built_against == ("torch",)
    said = render_environment(recipe, job)
    assert said["BUILD_VERSION"] == "0.28.0+cu126.avx"
    assert said["TORCH_CUDA_ARCH_LIST"] == "8.6"
    assert "TORCH_CUDA_ARCH_LIST" not in environment(package, "0.28.0")
    source = render_source(recipe, package, "0.28.0")
    assert source is not None
    assert source.ref == "v0.28.0"


def test_recipes_of_torch_extensions_state_requirements_that_setup_py_hides() -> None:
    def requires(package: str) -> tuple[str, ...] | None:
        return render_requires(*asked(package, "2.1.2"))

    assert requires("torch-scatter") == ()
    assert requires("torch-sparse") == ("scipy",)
    assert requires("flash-attn") == ("einops",)
    flash = environment("flash-attn", "2.8.3", "avx2", cuda="12.8", sms="8.0 9.0")
    assert flash["FLASH_ATTN_CUDA_ARCHS"] == "none"  # or 8.6 beside 9.0 would be left out
    assert (flash["FORCE_CUDA"], flash["TORCH_CUDA_ARCH_LIST"]) == ("1", "8.0;9.0")
    scatter = environment("torch-scatter", "2.1.2")
    assert scatter["FORCE_ONLY_CPU"] == "1"
    assert not {"FORCE_CUDA", "TORCH_CUDA_ARCH_LIST", "FLASH_ATTN_CUDA_ARCHS"} & set(scatter)


@pytest.mark.parametrize("isa", sorted(rung for rung in RUNGS if RUNGS[rung].arch == "x86_64"))
def test_ggml_gets_a_switch_for_each_feature(isa: str) -> None:
    said = environment("llama-cpp-python", "0.3.16", isa)["CMAKE_ARGS"].split()
    switches = dict(each.removeprefix("-DGGML_").split("=") for each in said if "-DGGML_" in each)
    assert switches["NATIVE"] == "OFF"
    features = RUNGS[isa].features
    x86 = {"AVX": "avx", "AVX2": "avx2", "FMA": "fma", "F16C": "f16c", "AVX512": "avx512f"}
    for name, feature in {**x86, "AVX512_VNNI": "avx512_vnni", "AMX_INT8": "amx_int8"}.items():
        assert switches[name] == ("ON" if feature in features else "OFF"), name


def test_ggml_finds_nvidias_libraries_beside_its_package() -> None:
    def said(cuda: str) -> tuple[list[str], str]:
        recipe, job = asked("llama-cpp-python", "0.3.16", "avx2", cuda=cuda, sms="7.5")
        needs = [each for each in render_requires(recipe, job) or () if "cu" in each]
        return needs, render_environment(recipe, job)["LDFLAGS"]

    needs, flags = said("12.6")
    assert needs == ["cuda-toolkit[cublas,cudart]==12.6.*"]
    assert r"-rpath,\$ORIGIN/../../nvidia/cuda_runtime/lib" in flags
    assert said("13.0")[1] == r"-Wl,-rpath,\$ORIGIN/../../nvidia/cu13/lib"
    assert said("11.7")[0] == ["nvidia-cublas-cu11==11.10.3.66", "nvidia-cuda-runtime-cu11==11.7.*"]
    recipe, job = asked("llama-cpp-python", "0.3.16", "armv8.2", cuda="12.2", sms="8.0")
    assert render_libraries(recipe, job) == {"cuda": "the libraries of CUDA 12.2"}
    assert "LDFLAGS" not in environment("llama-cpp-python", "0.3.16")


def test_an_old_torchaudio_downloads_nothing() -> None:
    """Its CTC decoder brings zlib, bzip2 and xz by download."""
    assert environment("torchaudio", "2.0.2")["BUILD_CTC_DECODER"] == "0"
    assert "BUILD_CTC_DECODER" not in environment("torchaudio", "2.1.0")


@pytest.mark.parametrize(
    ("version", "torch", "patched"),
    [
        ("2.8.3", "2.14.1", True),
        ("2.8.3.post2", "2.13.0", True),
        ("2.8.3", "2.12.1", False),
        ("2.8.4", "2.14.1", False),
    ],
)
def test_flash_attention_uses_the_cxx_standard_of_torchs_headers(
    version: str, torch: str, patched: bool
) -> None:
    recipe, job = asked("flash-attn", version, "avx2", cuda="13.0", sms="9.0")
    found = patches_for(recipe, job.model_copy(update={"against": {"torch": torch}}))
    assert [patch.file for patch in found] == ["flash-attn-cxx20.patch"] * patched
    assert all(patch.text.count("+") >= 2 and "c++20" in patch.text for patch in found)


def test_ggml_gets_settings_for_gpus_and_arm() -> None:
    gpu = environment("llama-cpp-python", "0.3.16", cuda="12.6", sms="8.6 12.0")["CMAKE_ARGS"]
    assert "-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES='86-real;120-real'" in gpu
    arm = environment("llama-cpp-python", "0.3.16", "armv8.2")["CMAKE_ARGS"]
    assert "AVX" not in arm
    assert arm.endswith("-DGGML_CUDA=OFF")


@pytest.mark.parametrize(("name", "version"), [("numpy", "2.3.5"), ("llama-cpp-python", "0.3.16")])
def test_a_second_attempt_reuses_object_files(name: str, version: str) -> None:
    """By default, both backends make a folder of a random name."""
    recipe, job = asked(name, version)
    assert render_settings(recipe, job)["build-dir"] == "build/fleetbuild"


def test_build_blas_chooses_openblas_for_torch_on_x86() -> None:
    recipe, job = _with_blas("torch", "2.13.0", "x86-64-v2", "openblas")
    said = render_environment(recipe, job)
    assert said["BLAS"] == "OpenBLAS"
    assert not {"USE_STATIC_MKL", "INTEL_MKL_DIR"} & said.keys()
    assert "mkl" not in " ".join(render_requirements(recipe, job))
    assert "OpenBLAS" in render_libraries(recipe, job)["openblas"]
    for blas in (None, "mkl"):
        recipe, job = _with_blas("torch", "2.13.0", "x86-64-v2", blas)
        assert render_environment(recipe, job)["BLAS"] == "MKL"
        assert "openblas" not in render_libraries(recipe, job)


def test_build_blas_chooses_mkl_for_numpy() -> None:
    recipe, job = _with_blas("numpy", "2.3.5", "avx2", "mkl")
    files = render_files(recipe, job)
    assert "blas = 'mkl-sdl'\nlapack = 'mkl-sdl'\n" in files["target.ini"]
    assert "scipy-openblas.pc" not in files
    assert render_requires(recipe, job) == ("mkl<2025,>=2024.2",)
    needed = render_requirements(recipe, job)
    assert "mkl<2025,>=2024.2" in needed
    assert "scipy-openblas32" not in needed
    said = render_environment(recipe, job)
    assert said["LDFLAGS"] == "-Wl,-rpath,$ORIGIN/../../../.."
    assert said["PKG_CONFIG_PATH"] == FILES
    assert f"-L{VENV}/lib,-l:libmkl_rt.so.2" in files["mkl-sdl.pc"]


def _with_blas(
    package: str, version: str, isa: str, blas: str | None
) -> tuple[Recipe, RecipeInput]:
    recipe, job = asked(package, version, isa)
    return recipe, job.model_copy(update={"target": job.target.model_copy(update={"blas": blas})})


def test_numpy_has_only_its_targets_loops_and_bundles_openblas() -> None:
    recipe, job = asked("numpy", "2.3.5")
    files = render_files(recipe, job)
    assert "cpu-baseline = 'detect'\ncpu-dispatch = 'none'\n" in files["target.ini"]
    assert (
        f"-L{VENV}/lib/python3.11/site-packages/scipy_openblas32/lib"
        in (files["scipy-openblas.pc"])
    )
    assert render_settings(recipe, job)["setup-args"] == f"--native-file={FILES}/target.ini"
    assert render_requires(recipe, job) == ("scipy-openblas32",)
    assert "$ORIGIN/../../scipy_openblas32/lib" in render_environment(recipe, job)["LDFLAGS"]
