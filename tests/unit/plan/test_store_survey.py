"""What a source shows about its build, and that reading it runs nothing."""

from __future__ import annotations

import zipfile

import pytest

from fleetbuild.errors import ConfigError
from fleetbuild.plan.resolve.survey import survey_source
from tests.factories.files import make_sdist


def test_a_plain_source_has_no_gpu_code(tmp_path):
    survey = survey_source(make_sdist(tmp_path, "plain", requires='["numpy>=2"]'))
    assert survey.gpu_code == ()
    assert survey.requires == ("numpy>=2",)
    assert not survey.against_torch


def test_cuda_files_are_named_and_tests_do_not_count(tmp_path):
    files = {"csrc/add.cu": "", "tests/add.cu": "", "docs/x.cu": "", "src/a.cuh": ""}
    survey = survey_source(make_sdist(tmp_path, "kernels", files=files))
    assert survey.gpu_code == ("CUDA or HIP files: 2, such as csrc/add.cu",)


def test_setup_py_is_read_and_not_run(tmp_path):
    marker = tmp_path / "ran"
    setup = f"open({str(marker)!r}, 'w')\nfrom torch.utils.cpp_extension import CUDAExtension\n"
    survey = survey_source(make_sdist(tmp_path, "kernels", files={"setup.py": setup}))
    assert survey.against_torch
    assert survey.gpu_code == ("setup.py uses CUDAExtension",)
    assert not marker.exists()


def test_cmake_files_that_enable_cuda_are_found(tmp_path):
    cmake = "project(x LANGUAGES CXX)\nenable_language(CUDA)\n"
    survey = survey_source(make_sdist(tmp_path, "x", files={"CMakeLists.txt": cmake}))
    assert survey.gpu_code == ("CMakeLists.txt asks for CUDA or HIP",)
    commented = "project(x)\n# enable_language(CUDA)\n"
    assert not survey_source(
        make_sdist(tmp_path, "x", files={"CMakeLists.txt": commented})
    ).gpu_code


def test_requirements_at_run_time_count_only_if_something_is_compiled(tmp_path):
    asks = '["torch", "nvidia-cublas-cu12"]'
    pure = make_sdist(tmp_path, "pure", requires=asks)
    assert survey_source(pure).gpu_requirements == ()
    compiled = make_sdist(tmp_path, "compiled", requires=asks, files={"src/a.cpp": ""})
    assert survey_source(compiled).gpu_requirements == ("nvidia-cublas-cu12", "torch")


def test_requirements_known_only_at_build_time_are_unknown(tmp_path):
    text = '[project]\nname = "x"\nversion = "1"\ndynamic = ["dependencies"]\n'
    assert survey_source(make_sdist(tmp_path, "x", pyproject=text)).requires == ()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "pyproject.toml").write_text(text)
    assert survey_source(tmp_path / "tree").requires is None


@pytest.mark.parametrize("text", ['project = "name"', '[project]\nname = "x"\ndependencies = 5\n',
                                  '[project]\nname = "x"\ndynamic = 5\n'])  # fmt: skip
def test_a_project_of_other_types_requires_nothing_that_is_known(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    assert not survey_source(tmp_path).requires


def test_requirements_of_an_older_pkg_info_count_if_it_has_some(tmp_path):
    head = "Metadata-Version: 2.1\nName: x\nVersion: 1\n"
    (tmp_path / "PKG-INFO").write_text(head)
    assert survey_source(tmp_path).requires is None
    (tmp_path / "PKG-INFO").write_text(f"{head}Requires-Dist: a\nRequires-Dist: b; extra == 'c'\n")
    assert survey_source(tmp_path).requires == ("a",)


def test_requirements_that_a_recipe_would_render_are_left_out(tmp_path):
    asks = '["a @ https://x/{{ 1 }}", "b; extra == \'more\'", "c"]'
    assert survey_source(make_sdist(tmp_path, "x", requires=asks)).requires == ("c",)


def test_a_tree_and_a_zip_give_the_same_survey(tmp_path):
    tree = tmp_path / "tree"
    (tree / "csrc").mkdir(parents=True)
    (tree / "csrc" / "add.cu").touch()
    (tree / ".git").mkdir()
    (tree / ".git" / "more.cu").touch()
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("x-1.0/csrc/add.cu", "")
    signs = ("CUDA or HIP files: 1, such as csrc/add.cu",)
    assert survey_source(tree).gpu_code == survey_source(tmp_path / "x.zip").gpu_code == signs


def test_a_file_that_is_not_an_archive_is_reported(tmp_path):
    (tmp_path / "x.tar.gz").write_text("no archive")
    with pytest.raises(ConfigError, match="cannot be read as a source archive"):
        survey_source(tmp_path / "x.tar.gz")


LOCK = '[[package]]\nname = "libc"\nsource = "registry+https://index.example.org"\n'


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ({"Cargo.lock": LOCK}, True),
        ({"python/Cargo.lock": LOCK}, True),
        (
            {"Cargo.lock": LOCK, ".cargo/config.toml": "[source.crates-io]\nreplace-with = 'v'"},
            False,
        ),
        ({"Cargo.lock": LOCK, ".cargo/config.toml": "[build]\nrustflags = []"}, True),
        ({"Cargo.lock": '[[package]]\nname = "own"\n'}, False),
    ],
)
def test_a_cargo_build_and_its_missing_crates_are_found(tmp_path, files, missing):
    build = '["maturin>=1", "setuptools-rust"]'
    survey = survey_source(make_sdist(tmp_path, "crab", build=build, files=files))
    assert survey.built_by_cargo
    assert survey.crates_missing is missing
