"""The recipes that people wait for: what each says for a target."""

from __future__ import annotations

import re

import pytest

from fleetbuild.recipes import (
    RecipeInput,
    find_recipe,
    patches_for,
    render_environment,
    render_files,
    render_not_buildable,
    render_settings,
)
from fleetbuild.toolchains.nvidia import toolkit_archives, toolkit_requirements
from tests.factories.plans import make_target


def job(package: str, version: str, isa: str, *, cuda: str | None = None, sms: str = "",
        torch: str = "2.13.0") -> RecipeInput:  # fmt: skip
    target = make_target(isa, "2.28", sms=tuple(sms.split()))
    return RecipeInput(package=package, version=version, target=target, cuda=cuda, flags="-mtarget",
               against={"torch": torch})  # fmt: skip


@pytest.mark.parametrize(
    ("isa", "avx512", "bf16"), [("avx2", "OFF", "OFF"), ("avx512", "ON", "OFF"),
                                ("avx512bf16", "ON", "ON"), ("armv8", None, None)]
)  # fmt: skip
def test_bitsandbytes_leaves_nothing_to_the_compiler(isa, avx512, bf16):
    settings = render_settings(find_recipe("bitsandbytes"), job("bitsandbytes", "0.50.1", isa))
    assert settings["cmake.define.COMPUTE_BACKEND"] == "cpu"
    assert settings.get("cmake.define.HAS_AVX512F_FLAG") == avx512
    assert settings.get("cmake.define.HAS_AVX512BF16_FLAG") == bf16
    assert "cmake.define.COMPUTE_CAPABILITY" not in settings


def test_bitsandbytes_has_code_for_the_sms_of_the_target():
    asked = job("bitsandbytes", "0.50.1", "avx2", cuda="12.6", sms="7.5 8.6")
    settings = render_settings(find_recipe("bitsandbytes"), asked)
    assert settings["cmake.define.COMPUTE_BACKEND"] == "cuda"
    assert settings["cmake.define.COMPUTE_CAPABILITY"] == "75;86"


def test_bitsandbytes_needs_no_installed_toolkit():
    # It links with cuBLAS, and up to 0.49 with cuSPARSE.
    assert find_recipe("bitsandbytes").toolkit_wheels == ("cublas", "cusparse")


# torch's ATen/cuda/CUDAContext.h includes the headers of these three.
HEADERS = {"cublas", "cusolver", "cusparse"}


@pytest.mark.parametrize(
    ("package", "needed"),
    [
        ("torchvision", HEADERS),
        # find_package(Torch) also looks for the libraries of its CMake targets.
        ("torchaudio", HEADERS | {"cufft", "curand", "nvrtc", "nvtx"}),
        ("llama-cpp-python", {"cublas"}),
    ],
)
@pytest.mark.parametrize("cuda", ["11.8", "12.6", "12.8", "13.0"])
def test_a_recipe_needs_no_installed_toolkit(package, needed, cuda):
    named = find_recipe(package).toolkit_wheels or ()
    assert needed <= set(named)
    assert toolkit_requirements(cuda, "x86_64", ["8.6"], named) or toolkit_archives(
        cuda, "x86_64", ["8.6"], named
    )


@pytest.mark.parametrize("isa", ["x86-64", "x86-64-v2", "avx"])
def test_bitsandbytes_for_a_cpu_without_avx2_gets_no_flags_above_its_rung(isa):
    recipe, asked = find_recipe("bitsandbytes"), job("bitsandbytes", "0.49.2", isa)
    included = render_settings(recipe, asked)["cmake.define.CMAKE_PROJECT_INCLUDE"]
    assert included.endswith("/processor.cmake")
    said = render_files(recipe, asked)["processor.cmake"]
    assert f'set(CMAKE_SYSTEM_PROCESSOR "{isa}")' in said
    assert re.search("x86_64|amd64", isa) is None  # what CMakeLists.txt adds its flags for


@pytest.mark.parametrize("isa", ["avx2", "avx512", "armv8"])
def test_bitsandbytes_keeps_the_name_of_other_processors(isa):
    settings = render_settings(find_recipe("bitsandbytes"), job("bitsandbytes", "0.50.1", isa))
    assert "cmake.define.CMAKE_PROJECT_INCLUDE" not in settings


@pytest.mark.parametrize(
    ("version", "isa", "patched"),
    [("0.48.2", "avx", False), ("0.49.2", "avx", False), ("0.50.0", "avx", True),
     ("0.50.1", "x86-64-v2", True), ("0.50.1", "avx2", False), ("0.50.1", "avx512", False),
     ("0.50.1", "armv8", False), ("0.51.0", "avx", False)],
)  # fmt: skip
@pytest.mark.parametrize(("cuda", "sms"), [(None, ""), ("12.4", "8.6")])
def test_the_pragma_of_bitsandbytes_for_avx2_is_taken_out_below_avx2(
    version, isa, patched, cuda, sms
):
    asked = job("bitsandbytes", version, isa, cuda=cuda, sms=sms)
    names = [patch.file for patch in patches_for(find_recipe("bitsandbytes"), asked)]
    assert names == (["bitsandbytes-avx2.patch"] if patched else [])


@pytest.mark.parametrize(
    ("isa", "baseline"),
    [
        ("x86-64", "SSE2"),
        ("avx", "SSE3;SSSE3;SSE4_1;POPCNT;SSE4_2;AVX"),
        ("avx2", "SSE3;SSSE3;SSE4_1;POPCNT;SSE4_2;AVX;FP16;AVX2;FMA3"),
        ("armv8", "NEON"),
        ("armv8.2", "NEON_DOTPROD;NEON_FP16"),
    ],
)
def test_opencv_has_the_baseline_of_the_target_and_nothing_above_it(isa, baseline):
    recipe = find_recipe("opencv-python")
    arguments = render_environment(recipe, job("opencv-python", "4.12.0.88", isa))["CMAKE_ARGS"]
    assert f"-DCPU_BASELINE='{baseline}' -DCPU_DISPATCH= " in arguments


@pytest.mark.parametrize(
    ("isa", "width"), [("avx", "__SCALAR__"), ("avx2", "__AVX256__"), ("avx512", "__AVX512__")]
)
def test_deepspeed_gets_the_vector_width_of_the_target(isa, width):
    recipe = find_recipe("deepspeed")
    asked = job("deepspeed", "0.19.8", isa)
    assert render_environment(recipe, asked)["FLEETBUILD_SIMD"] == f"-D{width}"
    assert [patch.file for patch in patches_for(recipe, asked)] == ["deepspeed-cpu.patch"]


def test_orjson_chooses_no_code_at_run_time_below_avx2():
    recipe = find_recipe("orjson")
    names = [[p.file for p in patches_for(recipe, job("orjson", "3.9.7", isa))]
             for isa in ("avx", "avx2")]  # fmt: skip
    assert names == [["orjson-no-dispatch.patch"], []]


@pytest.mark.parametrize("package", ["orjson", "tokenizers", "polars-runtime-32"])
def test_rust_packages_get_rustc_flags_and_require_cargo(package):
    recipe = find_recipe(package)
    environment = render_environment(recipe, job(package, "1.0", "avx2"))
    assert "+avx2" in environment["RUSTFLAGS"]
    assert environment["CARGO_NET_OFFLINE"] == "true"
    assert "cargo" in recipe.tools


@pytest.mark.parametrize("package", ["onnxruntime", "pyarrow", "vllm"])
def test_an_unbuildable_package_says_why(package):
    assert render_not_buildable(find_recipe(package), job(package, "1.0", "avx2"))


@pytest.mark.parametrize(
    ("version", "torch", "patches", "buildable"),
    [
        ("2.8.3", "2.12.0", [], True),
        ("2.8.3.post2", "2.13.0", ["flash-attn-cxx20.patch"], True),
        ("2.8.1", "2.14.0", ["flash-attn-cxx20.patch"], True),
        ("2.8.0.post2", "2.14.0", ["flash-attn-cxx20-older.patch"], True),
        ("2.7.3", "2.13.0", ["flash-attn-cxx20-older.patch"], True),
        ("2.6.3", "2.13.0", [], False),
        ("2.6.3", "2.6.0", [], True),
        ("2.8.4", "2.14.0", [], True),
    ],
)
def test_flash_attention_uses_cxx20_with_a_torch_that_needs_it(version, torch, patches, buildable):
    recipe = find_recipe("flash-attn")
    asked = job("flash-attn", version, "avx2", cuda="12.8", sms="8.0", torch=torch)
    assert [patch.file for patch in patches_for(recipe, asked)] == patches
    assert (not render_not_buildable(recipe, asked)) is buildable
