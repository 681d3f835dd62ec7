"""Indexes: which one serves a package, releases that are too new, endless downloads."""

from __future__ import annotations

import http.server
import os
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from fleetbuild.audit.wheel_tags import best_wheel
from fleetbuild.errors import InstallError
from fleetbuild.files import sha256_of
from fleetbuild.models import Config, LockedFile, ReleaseFile, TargetLibc
from fleetbuild.plan.decide.resolution import LockRequest
from fleetbuild.plan.resolve.uv import find_wheels, newest_version, resolve
from fleetbuild.store import fetch as fetching
from fleetbuild.store.fetch import fetch
from fleetbuild.store.index import write_index
from fleetbuild.store.index_config import index_settings, settings_of
from fleetbuild.store.wheels import Store
from tests.factories.files import make_wheel


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def indexes(tmp_path, monkeypatch):
    """Two indexes: an internal one, and a public one where somebody uploaded higher versions."""
    for index, version in (("internal", "1.0"), ("public", "99.0")):
        files = [
            make_wheel(tmp_path / index / "files", "secret-lib".replace("-", "_"), version),
            make_wheel(tmp_path / index / "files", "tool", version, requires="secret-lib"),
        ]
        write_index(
            tmp_path / index,
            [ReleaseFile(name=path.name.partition("-")[0], path=path, sha256=sha256_of(path))
             for path in files],
        )  # fmt: skip
    server = Server(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_STRATEGY"):
        monkeypatch.delenv(name, raising=False)
    address = f"http://127.0.0.1:{server.server_address[1]}"
    yield f"{address}/internal/simple", f"{address}/public/simple"
    server.shutdown()
    server.server_close()


def request_for(*requirements):
    return LockRequest(
        requirements=requirements,
        python_version="3.11.2",
        python="cp311",
        arch="x86_64",
        libc=TargetLibc(family="glibc", floor="2.28"),
    )


def locked(settings, *requirements):
    answer = resolve(request_for(*requirements), settings)
    assert answer.problem is None, answer.problem
    return {file.name: (file.version, "internal" in file.url) for file in answer.wheels}


def test_a_higher_version_elsewhere_does_not_win_over_the_first_index(
    indexes, tmp_path, monkeypatch
):
    internal, public = indexes
    pip = {"PIP_INDEX_URL": public, "PIP_EXTRA_INDEX_URL": internal, "PIP_CONFIG_FILE": "/dev/null"}
    of_pip = index_settings(environ=pip, home=tmp_path)
    assert locked(of_pip, "secret-lib") == {"secret-lib": ("1.0", True)}
    assert newest_version("secret-lib", of_pip) == "1.0"
    plain = index_settings((internal,), environ={"UV_DEFAULT_INDEX": public}, home=tmp_path)
    assert locked(plain, "secret-lib") == {"secret-lib": ("1.0", True)}
    monkeypatch.setenv("UV_INDEX_STRATEGY", "unsafe-best-match")
    assert locked(plain, "secret-lib") == {"secret-lib": ("1.0", True)}


def test_a_later_index_is_not_asked_and_the_message_says_how_to_name_it(indexes, tmp_path):
    internal, public = indexes
    plain = index_settings((internal,), environ={"UV_DEFAULT_INDEX": public}, home=tmp_path)
    answer = resolve(request_for("secret-lib>=2"), plain)
    assert "secret-lib is on http" in answer.problem
    assert "the first index that has it" in answer.problem
    assert "package_index: {secret-lib: ADDRESS}" in answer.fix


def test_indexes_after_a_folder_are_asked_only_for_missing_packages(indexes, tmp_path):
    folder = (tmp_path / "internal/simple").as_uri()
    settings = index_settings((folder,), environ={"UV_DEFAULT_INDEX": indexes[1]}, home=tmp_path)
    assert locked(settings, "secret-lib") == {"secret-lib": ("1.0", True)}
    assert locked(settings, "secret-lib>=2") == {"secret-lib": ("99.0", False)}


def test_a_package_has_an_index_of_its_own(indexes, tmp_path):
    internal, public = indexes
    config = Config(package_index={"Secret_Lib": internal}, index=(public,))
    settings = index_settings(
        config.index, tmp_path, {"UV_NO_INDEX": ""}, tmp_path, package_index=config.package_index
    )
    assert locked(settings, "secret-lib") == {"secret-lib": ("1.0", True)}
    # Also where another package asks for it; that one comes from elsewhere.
    assert locked(settings, "tool") == {"secret-lib": ("1.0", True), "tool": ("99.0", False)}
    request = request_for("secret-lib==1.0")
    assert find_wheels([request], settings)[request].wheels[0].version == "1.0"
    assert newest_version("secret-lib", settings) == "1.0"
    assert "you require secret-lib" in resolve(request_for("secret-lib==7"), settings).problem


def test_the_login_of_such_an_index_is_in_no_file_and_no_argument(indexes, tmp_path, monkeypatch):
    internal = indexes[0].replace("://", "://me:canary-7f3a@")
    settings = settings_of(Config(package_index={"secret-lib": internal}), tmp_path)
    assert settings.environment["UV_INDEX_OWN0_PASSWORD"] == "canary-7f3a"
    assert "canary" not in repr(settings) + settings.key
    seen = []

    def run(command, *, cwd, **_):
        seen.append(" ".join(command) + "".join(path.read_text() for path in cwd.iterdir()))
        raise subprocess.TimeoutExpired("uv", 1)

    monkeypatch.setattr("fleetbuild.plan.resolve.uv.run_program", run)
    resolve(request_for("secret-lib"), settings)
    assert "explicit = true" in seen[0]
    assert "canary" not in seen[0]


def test_a_folder_of_wheels_may_be_the_index_of_a_package(indexes, tmp_path):
    config = Config(package_index={"secret-lib": "internal/files"}, index=(indexes[1],))
    assert locked(settings_of(config, tmp_path), "tool") == {
        "secret-lib": ("1.0", True),
        "tool": ("99.0", False),
    }


def test_files_that_are_too_new_are_not_taken(indexes, tmp_path):
    settings = index_settings(
        (indexes[0].replace("://", "://me:canary-7f3a@"),), tmp_path,
        {"UV_DEFAULT_INDEX": indexes[0]}, tmp_path, exclude_newer="2020-01-01",
    )  # fmt: skip
    answer = resolve(request_for("secret-lib"), settings)
    assert answer.problem.startswith(f"No set of dependencies in {indexes[0]} fits Python 3.11 (cp")
    with pytest.raises(ValueError, match="exclude_newer"):
        Config(exclude_newer="yesterday")


@pytest.mark.usefixtures("indexes")
def test_the_size_of_a_file_is_in_the_lock(tmp_path):
    settings = index_settings((str(tmp_path / "internal/files"),), tmp_path, {}, tmp_path)
    (file,) = resolve(request_for("secret-lib==1.0"), settings).wheels
    assert file.size == (tmp_path / "internal/files" / file.file).stat().st_size


class Endless(Quiet):
    """A server that sends more than it should, or hardly anything."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"x" * (1 if "slow" in self.path else 1 << 16))
                time.sleep(0.01 if "slow" in self.path else 0)
        except OSError:
            pass


@pytest.fixture
def endless():
    server = Server(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def left_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_download_ends_at_the_size_in_the_lock(endless, tmp_path):
    with pytest.raises(InstallError, match="more than 100000 bytes"):
        fetch(f"{endless}/big", "0" * 64, tmp_path / "big", size=100_000)
    assert left_in(tmp_path) == []


def test_a_download_of_unknown_size_is_limited(endless, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_MAX_BYTES", 1 << 20)
    with pytest.raises(InstallError, match="more than 1048576 bytes"):
        fetch(f"{endless}/big", "0" * 64, tmp_path / "big")
    assert left_in(tmp_path) == []


def test_a_download_that_trickles_is_ended(endless, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_SECONDS", 0.5)
    began = time.monotonic()
    with pytest.raises(InstallError, match="bytes arrived in time"):
        fetch(f"{endless}/slow", "0" * 64, tmp_path / "slow", size=1000, pause=lambda _: None)
    assert fetching.read_text(f"{endless}/slow", 10_000, {}) is None  # as METADATA of an index
    assert time.monotonic() - began < 20
    assert left_in(tmp_path) == []


def test_a_token_in_the_path_of_an_index_is_not_in_the_lock_and_downloads_work(indexes, tmp_path):
    token = "canary7f3aCANARY7f3a"
    (tmp_path / token).symlink_to(tmp_path / "internal")
    settings = index_settings(
        environ={"UV_INDEX_URL": indexes[0].replace("/internal/", f"/{token}/")}, home=tmp_path
    )
    answer = resolve(request_for("secret-lib"), settings)
    assert "canary" not in repr(answer) + repr(settings) + settings.key
    assert "canary" not in repr(resolve(request_for("secret-lib==7"), settings))
    (file,) = answer.wheels
    path = Store(tmp_path / "store", settings).fetch(file)
    assert sha256_of(path) == file.sha256
    with pytest.raises(InstallError, match="a token or a signature, which a plan does not hold"):
        Store(tmp_path / "other").fetch(file)


@pytest.mark.parametrize(
    "address",
    ["ftp://127.0.0.1/x", "data:text/plain,x", "javascript:x", "//host/x", "x", "", "-x",
     "gopher://127.0.0.1/x", "unix:///run/x", "jar:file:///x", "FILE2:///x"],
)  # fmt: skip
def test_an_address_of_another_kind_is_not_fetched(address, tmp_path):
    with pytest.raises(InstallError, match="is not a valid file URL"):
        fetch(address, "0" * 64, tmp_path / "x", pause=lambda _: None)
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("what", ["/dev/zero", "pipe", ""])
def test_a_device_or_a_pipe_is_not_fetched(what, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    address = (tmp_path / what).as_uri()  # as a lock may name it
    with pytest.raises(InstallError, match="it is not a file"):
        fetch(address, "0" * 64, tmp_path / "x", pause=lambda _: None)
    assert left_in(tmp_path) == []


class Elsewhere(Quiet):
    """A server that sends who asks to an address of another kind."""

    to = ""

    def do_GET(self):
        self.send_response(302)
        self.send_header("Location", self.to)
        self.end_headers()


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://127.0.0.1:1/x", "data:,x", "x" * 9000])
def test_a_redirect_to_an_address_of_another_kind_is_not_followed(to, tmp_path, monkeypatch):
    monkeypatch.setattr(Elsewhere, "to", to)
    server = Server(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/x"
    with pytest.raises(InstallError):
        fetch(address, "0" * 64, tmp_path / "x", pause=lambda _: None)
    server.shutdown()
    server.server_close()
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("file", ["../../x.whl", "/etc/x.whl", "a/../../../x.whl", "x\n.whl"])
def test_a_file_name_in_a_lock_leads_out_of_no_folder(file, tmp_path):
    locked = LockedFile(
        name="x", version="1", file=file, sha256="0" * 64, url="https://index.invalid/x.whl"
    )
    store = Store(tmp_path / "store")
    path = store.path_of(locked)
    assert tmp_path / "store/files" in path.resolve().parents


def test_tags_of_a_name_on_an_index_are_not_multiplied():
    tags = [".".join(f"{sign}{number}" for number in range(20)) for sign in "abc"]
    names = ["x-{}-py3.{}-none.{}-any.{}.whl".format(number, *tags) for number in range(300)]
    target = ("cp311", "x86_64", TargetLibc(family="glibc", floor="2.28"))
    began = time.process_time()
    assert best_wheel(names, *target) == names[0]
    assert time.process_time() - began < 1  # 300 products of 9,000 tags take many seconds
    assert best_wheel([f"x-1-py3.{'a.' * 200}b-none-any.whl"], *target) is None
