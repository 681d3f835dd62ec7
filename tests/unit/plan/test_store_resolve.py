"""Resolving for foreign machines: from a folder of files, and once from a real index."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fleetbuild.audit.wheel_tags import best_wheel
from fleetbuild.errors import ResolutionError
from fleetbuild.models import TargetLibc
from fleetbuild.plan.decide.resolution import LockRequest, StaticMetadata
from fleetbuild.plan.resolve.uv import (
    find_wheels,
    install_wheels,
    locate,
    newest_version,
    resolve,
    resolve_all,
)
from fleetbuild.store.index_config import IndexSettings, index_settings
from tests.factories.files import make_sdist, make_wheel, only


def request_for(*requirements, sources=(), python="cp311", arch="x86_64", libc="glibc 2.28"):
    family, floor = libc.split()
    return LockRequest(
        requirements=requirements,
        sources=sources,
        python_version=f"{python[2]}.{python[3:].rstrip('t')}.2",
        python=python,
        arch=arch,
        libc=TargetLibc(family=family, floor=floor),
    )


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files"
    make_sdist(folder, "pkg", "1.0", requires='["dep"]')
    make_sdist(folder, "pkg", "1.1", requires='["dep"]')
    for tag in ("manylinux_2_17_x86_64", "manylinux_2_28_x86_64", "manylinux_2_34_x86_64",
                "manylinux_2_34_aarch64", "musllinux_1_2_x86_64"):  # fmt: skip
        make_wheel(folder, "dep", "2.0", f"cp311-cp311-{tag}")
    make_sdist(folder, "sourceonly")
    make_wheel(folder, "wheelonly")
    return folder


@pytest.fixture
def settings(files, tmp_path):
    return only(files, tmp_path / "cache")


@pytest.mark.parametrize(
    ("variant", "package"), [("cpu", "torch"), ("cu130", "torchvision"), (None, "torch")]
)
def test_torch_is_resolved_from_the_requests_pytorch_index(settings, monkeypatch, variant, package):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    request = request_for(package).model_copy(update={"pytorch": variant})
    offline = {k: v for k, v in settings.environment.items() if k != "UV_NO_INDEX"}
    answer = resolve(request, IndexSettings(offline))
    assert answer.offline
    address = f"https://download.pytorch.org/whl/{variant}/{package}/"
    assert (address in answer.problem) is (variant is not None)


@pytest.mark.parametrize(
    ("arch", "libc", "tag"),
    [
        ("x86_64", "glibc 2.17", "manylinux_2_17_x86_64"),
        ("x86_64", "glibc 2.29", "manylinux_2_28_x86_64"),
        ("x86_64", "glibc 2.41", "manylinux_2_34_x86_64"),
        ("aarch64", "glibc 2.34", "manylinux_2_34_aarch64"),
        ("x86_64", "musl 1.2.4", "musllinux_1_2_x86_64"),
    ],
)
def test_each_target_gets_its_best_wheel(settings, files, arch, libc, tag):
    answer = resolve(request_for("dep", arch=arch, libc=libc), settings)
    assert answer.problem is None
    assert [file.file for file in answer.wheels] == [f"dep-2.0-cp311-cp311-{tag}.whl"]
    assert answer.wheels[0].url == (files / answer.wheels[0].file).as_uri()
    assert len(answer.wheels[0].sha256) == 64


def test_a_source_is_located_without_its_dependencies(settings, files):
    answer = locate(request_for("pkg==1.1", sources=("pkg",)), settings)
    assert answer.sources[0].url == (files / "pkg-1.1.tar.gz").as_uri()
    assert answer.wheels == ()


def test_a_source_with_unknown_requirements_is_not_resolved(settings):
    answer = resolve(request_for("pkg==1.0", sources=("pkg",)), settings)
    assert answer.problem == "The run-time requirements of pkg are unknown."
    assert "recipe" in answer.fix


@pytest.mark.parametrize(
    "text",
    [
        "evil @ file:///tmp/evil-1.0.tar.gz",
        "evil @ git+https://host.invalid/evil",
        "-e /tmp/evil",
        "--index-url https://host.invalid/simple",
        "-r /etc/passwd",
        "dep\n--index-url https://host.invalid/simple",
        "dep\n",
        "/tmp/evil",
    ],
)
def test_a_requirement_that_names_an_address_or_an_option_is_refused(settings, text, monkeypatch):
    def run(*_, **__):
        raise AssertionError("uv was started")

    monkeypatch.setattr("fleetbuild.plan.resolve.uv.run_program", run)
    static = StaticMetadata(name="mine", version="1.0", requires=(text,))
    for request in (request_for(text),
                    request_for().model_copy(update={"static_metadata": (static,)})):  # fmt: skip
        answer = resolve(request, settings)
        assert "not a valid requirement" in answer.problem or "from an address" in answer.problem
        assert "fleetbuild.yml" in answer.fix


def test_extras_and_the_python_of_static_metadata_count(settings):
    static = StaticMetadata(
        name="base", version="1.0", requires=("dep ; extra == 'more'",), requires_python=">=3.9"
    )
    question = request_for().model_copy(update={"static_metadata": (static,)})
    assert resolve(question, settings).wheels == ()
    user = StaticMetadata(name="user", version="1.0", requires=("base[more]",))
    both = question.model_copy(update={"static_metadata": (static, user)})
    assert [file.name for file in resolve(both, settings).wheels] == ["dep"]
    new = static.model_copy(update={"requires_python": ">=3.12"})
    refused = resolve(question.model_copy(update={"static_metadata": (new,)}), settings)
    assert "3.12" in refused.problem


def test_static_metadata_is_used_for_resolving_and_left_out_of_the_result(settings, files):
    make_wheel(files, "torch", "2.13.0", requires="wheelonly")  # the index's own is not taken
    vision = StaticMetadata(name="vision", version="1.0", requires=("torch==2.13.0",))
    question = request_for()
    static = StaticMetadata(name="torch", version="2.13.0", requires=("dep",))
    answer = resolve(question.model_copy(update={"static_metadata": (static, vision)}), settings)
    assert answer.problem is None
    assert [file.name for file in answer.wheels] == ["dep"]
    other = static.model_copy(update={"version": "2.12.0"})
    refused = resolve(question.model_copy(update={"static_metadata": (other, vision)}), settings)
    assert "torch==2.13.0" in refused.problem


def test_constraints_only_limit_versions(settings, files):
    make_wheel(files, "wheelonly", "2.0")
    question = request_for("wheelonly")
    assert resolve(question, settings).wheels[0].version == "2.0"
    held = question.model_copy(update={"constraints": ("wheelonly==1.0", "dep==2.0")})
    assert [(file.name, file.version) for file in resolve(held, settings).wheels] == [
        ("wheelonly", "1.0")
    ]


def test_several_requests_are_resolved_in_parallel(settings):
    one, two = request_for("dep"), request_for("wheelonly")
    answers = resolve_all([one, two, one], settings)
    assert set(answers) == {one, two}
    assert answers[two].wheels[0].name == "wheelonly"


def test_packages_missing_on_the_index_are_errors(settings):
    with pytest.raises(ResolutionError, match=r"pkg 9.9 is not on the index; .* is 1.1"):
        locate(request_for("pkg==9.9", sources=("pkg",)), settings)
    with pytest.raises(ResolutionError, match="package absent is not on the index"):
        locate(request_for("absent==1", sources=("absent",)), settings)


def test_a_package_without_an_sdist_is_a_problem_that_names_the_places(settings, files):
    answer = locate(request_for("wheelonly==1.0", sources=("wheelonly",)), settings)
    assert answer.problem == f"No sdist was found in {files}."
    assert "package_index: {NAME: ADDRESS}" in answer.fix


@pytest.mark.parametrize(("python", "newest"), [("cp311", "2.0"), ("cp312", "3.0")])
def test_the_newest_version_is_the_one_for_the_nodes_python(files, settings, python, newest):
    make_wheel(files, "dep", "3.0", "cp312-cp312-manylinux_2_17_x86_64")
    words = f"dep 9.9 is not on the index; .* is {newest}"
    with pytest.raises(ResolutionError, match=words):
        find_wheels([request_for("dep==9.9", python=python)], settings, must_exist=True)


def test_a_wheel_that_must_exist_may_be_for_other_machines(settings):
    """Then the nodes are blocked; a package that no index has is a mistake in the configuration."""
    for text, words in (("dep==9.9", "dep 9.9 is not on the index; .* is 2.0"),
                        ("absent==1", "The package absent is not on the index")):  # fmt: skip
        with pytest.raises(ResolutionError, match=words):
            find_wheels([request_for(text)], settings, must_exist=True)
    for text in ("pkg==1.0", "dep==2.0"):
        request = request_for(text, python="cp312")
        assert find_wheels([request], settings, must_exist=True)[request].problem


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (request_for("dep", python="cp312"), "Python 3.12 (cp312) on x86_64 with glibc 2.28"),
        (request_for("dep", arch="aarch64"), "aarch64 with glibc 2.28"),
        (request_for("dep", python="cp311t"), "dep"),
        (request_for("sourceonly"), "sourceonly==1.0 has no"),
        (request_for("dep", libc="glibc 2.12"), "older than every platform"),
        (request_for("dep", libc="glibc 2.12", arch="aarch64"), "older than every platform"),
    ],
)
def test_unresolvable_dependencies_give_a_sentence_with_a_fix(settings, request_, words):
    answer = resolve(request_, settings)
    assert words in answer.problem
    assert answer.fix
    assert not answer.offline


def test_the_fix_for_a_misspelt_package_is_its_spelling(settings, files):
    misspelt = resolve(request_for("depp==1.0"), settings)
    assert misspelt.fix.startswith("Check the spelling of depp, or add the index")
    make_wheel(files, "lacking", requires="absent")
    assert "spelling" not in resolve(request_for("lacking"), settings).fix


def test_an_unreachable_index_is_reported_without_its_password(tmp_path):
    settings = IndexSettings(
        {
            "UV_DEFAULT_INDEX": "http://me:secret@127.0.0.1:9/simple",
            "UV_CACHE_DIR": str(tmp_path),
            "UV_HTTP_RETRIES": "0",
        }
    )
    answer = resolve(request_for("dep"), settings)
    assert answer.offline
    assert answer.problem == (
        "The package index at http://127.0.0.1:9/simple/dep/ cannot be reached: Connection refused"
        " (os error 111)"
    )


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            "error: Failed to fetch: `http://i/x/`\n  Caused by: HTTP status 503 for url (u)\n",
            "The package index at http://i/x/ answers with an error: HTTP status 503",
        ),
        ("error: Failed to fetch: http://i/x/", "The package index at http://i/x/ cannot be"),
        ("no words for http://i/x/ known", "No package index could be reached: no words for"),
    ],
)
def test_an_index_without_an_answer_is_named_in_plain_words(monkeypatch, settings, said, problem):
    done = subprocess.CompletedProcess("uv", 2, "", said)
    monkeypatch.setattr("fleetbuild.plan.resolve.uv.run_program", lambda *_, **__: done)
    answer = resolve(request_for("dep"), settings)
    assert answer.problem.startswith(problem)
    assert answer.offline


@pytest.mark.parametrize("said", ["these do not fit", "see https://host.invalid/why"])
def test_a_conflict_in_words_that_nobody_knows_is_a_conflict(monkeypatch, settings, said):
    """A newer uv may use other words; its exit code stays."""
    done = subprocess.CompletedProcess("uv", 1, "", f"error: {said}\n")
    monkeypatch.setattr("fleetbuild.plan.resolve.uv.run_program", lambda *_, **__: done)
    answer = resolve(request_for("dep"), settings)
    assert answer.problem.endswith(said)
    assert not answer.offline


@pytest.mark.parametrize(
    ("code", "words"),
    [(401, "refuses the login: 401 Unauthorized"), (403, "answers 403 Forbidden")],
)
@pytest.mark.parametrize("beside", ["", "UV_INDEX", "UV_FIND_LINKS"])
def test_an_index_that_refuses_the_login_is_named(tmp_path, code, words, beside):
    """Also beside a folder, where uv goes on without a word."""
    folder = tmp_path / "folder"
    folder.mkdir()
    more = {beside: folder.as_uri()} if beside else {}

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(code)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}/simple/"
        own = IndexSettings({"UV_DEFAULT_INDEX": address, "UV_CACHE_DIR": str(tmp_path), **more})
        try:
            with pytest.raises(ResolutionError) as raised:
                resolve(request_for("dep"), own)
        finally:
            server.shutdown()
    assert str(raised.value) == f"The package index at {address} {words}."
    assert "Correct its user, password or token" in raised.value.fix


@pytest.mark.parametrize("ask", [resolve, find_wheels])
def test_a_folder_of_wheels_that_cannot_be_read_stops_the_plan(ask, settings) -> None:
    """The plan stops with the reason in place of hours of building."""
    lost = replace(settings, environment={"UV_NO_INDEX": "1", "UV_FIND_LINKS": "/a/b /c/d"})
    request = request_for("small==1.0")
    with pytest.raises(ResolutionError) as caught:
        ask([request] if ask is find_wheels else request, lost)
    assert "Failed to read `--find-links` directory: /a/b /c/d" in caught.value.message
    assert "separated by commas" in caught.value.fix


def test_uv_works_without_a_cache(settings, monkeypatch, tmp_path) -> None:
    """As with a HOME that is read-only."""
    found = resolve(request_for("dep"), settings)
    lost = {**settings.environment, "UV_CACHE_DIR": "/proc/no/cache"}
    assert found.wheels
    assert resolve(request_for("dep"), replace(settings, environment=lost)) == found
    monkeypatch.setenv("UV_CACHE_DIR", "/proc/no/cache")
    assert install_wheels([make_wheel(tmp_path, "small")], tmp_path / "there") == ""
    assert (tmp_path / "there" / "small-1.0.dist-info").is_dir()


def test_a_resolver_that_hangs_is_ended(monkeypatch, settings):
    def hang(command, **_):
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr("fleetbuild.plan.resolve.uv.run_program", hang)
    assert "timed out" in resolve(request_for("dep"), settings).problem
    assert newest_version("dep", settings) is None


def test_wheels_are_ranked_as_installers_do():
    glibc = TargetLibc(family="glibc", floor="2.28")
    names = ["x-1-py3-none-any.whl", "x-1-cp39-abi3-manylinux2014_x86_64.whl", "odd.whl"]
    assert best_wheel(names, "cp311", "x86_64", glibc) == names[1]
    assert best_wheel(names, "cp36m", "x86_64", glibc) == names[0]
    assert best_wheel(["x-1-cp36-cp36m-linux_x86_64.whl"], "cp36m", "x86_64", glibc)
    assert best_wheel(["x-1-cp313-cp313t-linux_x86_64.whl"], "cp313t", "x86_64", glibc)
    assert best_wheel(names, "pypy", "x86_64", glibc) is None


@pytest.mark.network
def test_the_real_index_knows_hnswlib():
    settings = index_settings()
    answer = locate(request_for("hnswlib==0.8.0", sources=("hnswlib",)), settings)
    assert answer.problem is None, answer.problem
    assert answer.sources[0].file == "hnswlib-0.8.0.tar.gz"
    with pytest.raises(ResolutionError, match=r"hnswlib 9\.9\.9 is not on the index; the newest"):
        locate(request_for("hnswlib==9.9.9", sources=("hnswlib",)), settings)


def test_a_python_range_of_two_lines_adds_no_line_to_the_metadata_for_uv(settings):
    """uv would fetch the address, past the rule that a requirement names none."""
    static = StaticMetadata(
        name="base", version="1.0", requires=(),
        requires_python=">=3.8\nRequires-Dist: dep @ http://127.0.0.1:9/x.whl",
    )  # fmt: skip
    assert static.requires_python is None
    question = request_for().model_copy(update={"static_metadata": (static,)})
    assert resolve(question, settings).problem is None
