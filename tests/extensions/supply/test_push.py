"""`store push`: static indexes in a folder, and uploads to a real index server for pip and uv."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetbuild.cli import app
from fleetbuild.errors import BlockedError, ConfigError, InstallError, UsageError
from fleetbuild.extensions.supply.publish import export, push
from fleetbuild.extensions.supply.push import login_for
from fleetbuild.fleet import Fleet
from fleetbuild.models import Plan
from fleetbuild.plan.document.serialize import with_digest
from tests.factories.environments import installed_by, output_of
from tests.factories.files import make_wheel as wheel_file
from tests.factories.files import stocked
from tests.factories.plans import make_group, make_plan, make_target, make_wheel
from tests.factories.processes import free_port

_SERVER = shutil.which("devpi-server")
DEVPI = os.environ.get("FLEETBUILD_DEVPI") or (_SERVER and str(Path(_SERVER).parent))
FILE = "hnswlib-0.8.0+cpu.avx2-py3-none-any.whl"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a login, and no proxy."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("TWINE_USERNAME", "TWINE_PASSWORD", "UV_PUBLISH_TOKEN", "UV_PUBLISH_USERNAME",
                 "UV_PUBLISH_PASSWORD", "NETRC", "http_proxy", "HTTP_PROXY"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    return home


def fleet_with(tmp_path: Path, says: str = "0.8.0", plan: Plan | None = None) -> Fleet:
    plan = plan or with_digest(make_plan())
    state = tmp_path / f"state-{says}"
    state.mkdir()
    fleet = Fleet(state_dir=state)
    stocked(state, plan, says)
    fleet.save_plan(plan)
    return fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return fleet_with(tmp_path)


class Server:
    """An index server whose answers the test sets. It keeps every request."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str]] = []  # to uploads; then 200
        self.page: str | None = None
        self.uploads: list[tuple[Message, bytes]] = []
        self.logins: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(404 if outer.page is None else 200, outer.page or "nothing here")

            def do_POST(self) -> None:
                outer.logins.append(self.headers["Authorization"])
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.uploads.append((self.headers, body))
                self._say(*(outer.answers.pop(0) if outer.answers else (200, "")))

            def _say(self, code: int, text: str) -> None:
                self.send_response(code)
                if code == 301:
                    self.send_header("Location", "/elsewhere/")
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/legacy/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    made = Server()
    yield made
    made.close()


@pytest.fixture
def pypiserver(tmp_path: Path) -> Iterator[str]:
    """The address of a real index server, which takes uploads without a login."""
    port = free_port()
    (tmp_path / "served").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "pypiserver", "run", "-i", "127.0.0.1", "-p", str(port),
         "-P", ".", "-a", ".", "--disable-fallback", tmp_path / "served"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}/"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
    yield url
    process.terminate()
    process.wait()


def install(tmp_path: Path, program: str, line: str) -> str:
    """What the installed hnswlib says, in a clean environment, after a line of the table."""
    python = installed_by(line, tmp_path / f"venv-{program}")
    return output_of(python, "import hnswlib; print(hnswlib.__version__)")


@pytest.mark.parametrize("program", ["pip", "uv"])
def test_an_uploaded_wheel_is_installed_by_the_tables_line(
    tmp_path: Path, pypiserver: str, program: str
) -> None:
    fleet = fleet_with(tmp_path)
    pushed = push(fleet.store, pypiserver)
    assert (pushed.new, pushed.there) == ((FILE,), ())
    assert (tmp_path / "served" / FILE).is_file()
    assert pushed.table
    text = pushed.table.read_text()
    assert f"All these wheels are in one index, {pypiserver}simple/" in text
    (line,) = re.findall(rf"^{program} .*install .*$", text, re.MULTILINE)
    assert install(tmp_path, program, line) == "0.8.0"
    # The same again changes nothing; another content is refused.
    assert push(fleet.store, pypiserver).there == (FILE,)
    other = fleet_with(tmp_path, says="0.8.1")
    with pytest.raises(InstallError, match="already, with the sha256"):
        push(other.store, pypiserver)


@pytest.mark.parametrize(
    ("code", "said", "why", "fix"),
    [
        (403, "Invalid token", "refused the login", "TWINE_PASSWORD"),
        (401, "", "refused the login", "netrc"),
        (400, "The use of local versions is not allowed: local version", "refused", "with a \\+"),
        (409, "Conflict", "has another", "push to another index"),
        (400, "File already exists", "has another", "push to another index"),
        (403, "Not enough permissions to overwrite artifact", "has another", "Remove the file"),
        (405, "", "takes no uploads", "twine would upload to"),
        (301, "", "takes no uploads", "twine would upload to"),
        (413, "too large", "HTTP 413", "what the server says"),
    ],
)
def test_a_refusal_is_explained(
    tmp_path: Path, server: Server, *, code: int, said: str, why: str, fix: str
) -> None:
    server.answers = [(code, said)] * 5
    with pytest.raises(InstallError, match=why) as error:
        push(fleet_with(tmp_path).store, server.url)
    assert re.search(fix, error.value.fix)
    assert len(server.uploads) == 1


def test_a_server_in_trouble_is_asked_again(tmp_path: Path, server: Server) -> None:
    server.answers = [(503, "busy"), (500, "")]
    assert push(fleet_with(tmp_path).store, server.url).new == (FILE,)
    assert len(server.uploads) == 3


def test_an_index_without_hashes_cannot_say_that_a_file_is_the_same(
    tmp_path: Path, server: Server
) -> None:
    server.page = f'<a href="../../files/{FILE.replace("+", "%2B")}">{FILE}</a>'
    with pytest.raises(InstallError, match="without a sha256 to compare"):
        push(fleet_with(tmp_path).store, server.url)
    assert server.uploads == []


def test_no_answer_is_an_error_with_the_host(tmp_path: Path, server: Server) -> None:
    server.close()
    with pytest.raises(InstallError, match=r"could not be uploaded to 127\.0\.0\.1:\d+"):
        push(fleet_with(tmp_path).store, server.url)


@pytest.mark.parametrize(
    ("environ", "sent"),
    [
        ({}, b"net:rc"),
        ({"TWINE_PASSWORD": "s3cret"}, b"__token__:s3cret"),
        ({"TWINE_PASSWORD": "s3cret", "TWINE_USERNAME": "me"}, b"me:s3cret"),
        ({"UV_PUBLISH_TOKEN": "t0ken", "TWINE_PASSWORD": "s3cret"}, b"__token__:t0ken"),
    ],
)
def test_logins_come_from_the_environment_and_netrc(
    fleet: Fleet, home: Path, server: Server, monkeypatch: pytest.MonkeyPatch,
    *, environ: dict[str, str], sent: bytes,
) -> None:  # fmt: skip
    (home / ".netrc").write_text("machine 127.0.0.1 login net password rc\n")
    (home / ".netrc").chmod(0o600)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    push(fleet.store, server.url)
    assert [base64.b64decode(str(each).removeprefix("Basic ")) for each in server.logins] == [sent]


@pytest.mark.skipif(not DEVPI, reason="no devpi-server on the PATH, and none in FLEETBUILD_DEVPI")
def test_devpi_takes_the_wheels_and_refuses_another_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with devpi(tmp_path) as address:
        url = f"{address}/alice/wheels/"
        settings = {"index": f"{url}+simple/"}
        with pytest.raises(InstallError, match="refused the login"):
            push(fleet_with(tmp_path).store, url, **settings)
        monkeypatch.setenv("TWINE_USERNAME", "alice")
        monkeypatch.setenv("TWINE_PASSWORD", "s3cret")
        fleet = fleet_with(tmp_path, says="0.8.1")
        assert push(fleet.store, url, **settings).new == (FILE,)
        assert push(fleet.store, url, **settings).there == (FILE,)
        other = fleet_with(tmp_path, says="0.8.2")
        with pytest.raises(InstallError, match="already, with the sha256"):
            push(other.store, url, **settings)


@contextmanager
def devpi(tmp_path: Path) -> Iterator[str]:
    """The address of a real devpi with the index alice/wheels."""
    data = ["--serverdir", str(tmp_path / "devpi")]
    subprocess.run([f"{DEVPI}/devpi-init", "--no-root-pypi", *data], check=True,
                   capture_output=True)  # fmt: skip
    port = free_port()
    process = subprocess.Popen(
        [f"{DEVPI}/devpi-server", *data, "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"

    def ask(method: str, path: str, document: dict[str, Any], login: str = "") -> Any:
        request = urllib.request.Request(  # noqa: S310
            f"{address}/{path}", json.dumps(document).encode(), method=method,
            headers={"Content-Type": "application/json", "Accept": "application/json",
                     **({"X-Devpi-Auth": login} if login else {})},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.loads(answer.read())["result"]

    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                ask("PUT", "alice", {"password": "s3cret"})
                break
            except OSError:
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.2)
        token = ask("POST", "+login", {"user": "alice", "password": "s3cret"})["password"]
        login = base64.b64encode(f"alice:{token}".encode()).decode()
        ask("PUT", "alice/wheels", {"type": "stage", "bases": [], "volatile": False}, login)
        yield address
    finally:
        process.terminate()
        process.wait()


def test_a_damaged_netrc_is_not_quoted(home: Path) -> None:
    (home / ".netrc").write_text("s3cret\n")
    with pytest.raises(ConfigError, match="cannot be read") as error:
        login_for("https://index.example.org/")
    assert "s3cret" not in error.value.message + error.value.fix


def test_uv_reads_no_settings_from_a_folder_of_others(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/tmp is such a folder: uv would look for settings in each parent of where it runs."""
    common = tmp_path / "common"
    common.mkdir()
    (common / "uv.toml").write_text("no = such = settings\n")
    (common / "pyproject.toml").write_text("[tool.uv.workspace]\nmembers = ['*']\nno = such\n")
    monkeypatch.setattr(tempfile, "tempdir", str(common))
    monkeypatch.setenv("UV_PROJECT", str(common))
    monkeypatch.setenv("UV_PUBLISH_URL", "http://127.0.0.1:1/")
    monkeypatch.setenv("UV_PUBLISH_INDEX", "mine")
    assert push(fleet_with(tmp_path).store, server.url).new == (FILE,)


def test_no_output_has_the_login(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINE_PASSWORD", "s3cret")
    server.answers = [(403, "no")]
    fleet_with(tmp_path)
    state = str(tmp_path / "state-0.8.0")
    push = ["store", "push", server.url, "--state-dir", state]
    refused = CliRunner().invoke(app, [*push, "-v"])
    assert refused.exit_code == 6
    assert "refused the login" in refused.output
    assert "s3cret" not in refused.output
    done = CliRunner().invoke(app, [*push, "--json"])
    assert json.loads(done.stdout)["new"] == [FILE]
    assert "s3cret" not in done.output
    texts = [each.read_text() for each in Path(state).rglob("*.md")]
    assert texts
    assert not any("s3cret" in text for text in texts)


@pytest.mark.parametrize(
    ("destination", "index", "why"),
    [
        ("https://me:pw@example.org/", None, "contains a login"),
        ("https://example.org/", "https://me:pw@example.org/simple", "contains a login"),
        ("ftp://example.org/", None, "takes uploads"),
        ("folder", "https://example.org/simple", "the destination is a folder"),
    ],
)
def test_a_destination_that_does_not_serve_is_refused(
    tmp_path: Path, destination: str, index: str | None, why: str
) -> None:
    with pytest.raises(UsageError, match=why) as error:
        push(fleet_with(tmp_path).store, destination, index=index)
    assert "pw" not in error.value.message + error.value.fix


def test_a_login_does_not_travel_unencrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINE_PASSWORD", "s3cret")
    with pytest.raises(UsageError, match="unencrypted"):
        push(fleet_with(tmp_path).store, "http://index.example.org/")


def test_an_empty_store_uploads_nothing(tmp_path: Path, server: Server) -> None:
    fleet = fleet_with(tmp_path)
    shutil.rmtree(tmp_path / "state-0.8.0" / "store" / "wheels")
    with pytest.raises(BlockedError, match="no wheel that was built"):
        push(fleet.store, server.url)
    assert server.uploads == []


def test_a_folder_keeps_earlier_wheels(tmp_path: Path) -> None:
    folder = tmp_path / "www"
    pushed = push(fleet_with(tmp_path).store, folder)
    assert pushed.new == (f"cpu-avx2-cp311/{FILE}",)
    assert fleet_with(tmp_path, says="again").store is not None
    # Another version of the same group is added; both can be installed, the table says the newer.
    plan = make_plan((make_group(wheels=(make_wheel("hnswlib", "0.9.0+cpu.avx2"),)),))
    state = tmp_path / "newer"
    state.mkdir()
    fleet = Fleet(state_dir=state)
    made = wheel_file(state, "hnswlib", "0.9.0+cpu.avx2", files={"hnswlib.py": b"__version__ = 9"})
    store = stocked(tmp_path / "unused", plan)
    shutil.rmtree(store.root / "wheels")
    store.add(made, plan.groups[0].wheels[0], built_on="a", seconds=1)
    shutil.copytree(store.root, state / "store")
    fleet.save_plan(with_digest(plan))
    assert push(fleet.store, folder).new == (f"cpu-avx2-cp311/{made.name}",)
    page = json.loads((folder / "cpu-avx2-cp311/simple/hnswlib/index.json").read_text())
    assert page["versions"] == ["0.8.0+cpu.avx2", "0.9.0+cpu.avx2"]
    assert [each["hashes"]["sha256"] for each in page["files"]]
    text = (folder / "variants.md").read_text()
    assert text.count("| `cpu-avx2-cp311` | hnswlib") == 2
    assert text.count("'hnswlib==0.9.0+cpu.avx2'") == 2
    assert "'hnswlib==0.8.0" not in text
    # An export of the same plan says exactly what it has.
    export(fleet.store, folder)
    page = json.loads((folder / "cpu-avx2-cp311/simple/hnswlib/index.json").read_text())
    assert page["versions"] == ["0.9.0+cpu.avx2"]
    assert (folder / "variants.md").read_text().count("| `cpu-avx2-cp311` | hnswlib") == 1


def test_a_published_file_of_a_folder_never_changes(tmp_path: Path) -> None:
    folder = tmp_path / "www"
    fleet = fleet_with(tmp_path)
    push(fleet.store, folder)
    assert push(fleet.store, folder).new == ()
    before = (folder / "cpu-avx2-cp311/files" / FILE).read_bytes()
    with pytest.raises(UsageError, match="Installers that locked the other file"):
        push(fleet_with(tmp_path, says="0.8.1").store, folder)
    assert (folder / "cpu-avx2-cp311/files" / FILE).read_bytes() == before


def index_of_somebody_else(folder: Path, text: str) -> None:
    page = folder / "cpu-avx2-cp311/simple/x/index.json"
    page.parent.mkdir(parents=True)
    page.write_text(text)
    files = folder / "cpu-avx2-cp311/files"
    files.mkdir()
    (files / "y-1-py3-none-any.whl").write_bytes(b"")


ROW = '{"filename": "%s", "hashes": {"sha256": "%s"}}'


def test_the_name_in_an_index_of_somebody_else_leads_to_no_other_folder(tmp_path: Path) -> None:
    row = ROW % ("y-1-py3-none-any.whl", "0" * 64)
    document = f'{{"name": "{tmp_path}/outside", "files": [{row}]}}'
    index_of_somebody_else(tmp_path / "www", document)
    push(fleet_with(tmp_path).store, tmp_path / "www")
    assert not (tmp_path / "outside").exists()
    assert (tmp_path / "www/cpu-avx2-cp311/simple/y/index.json").is_file()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        *(f'{{"files": [{ROW % row}]}}' for row in (("y", "00"), ("<b>-1", "00"), ("y-1", "<"))),
    ],
)
def test_an_index_of_somebody_else_is_left_alone(tmp_path: Path, text: str) -> None:
    index_of_somebody_else(tmp_path / "www", text)
    with pytest.raises(UsageError, match="not an index that fleetbuild wrote"):
        push(fleet_with(tmp_path).store, tmp_path / "www")


def test_the_table_names_the_driver(tmp_path: Path) -> None:
    target = make_target("avx512", sms=("8.9",))
    wheel = make_wheel("hnswlib", "0.8.0+cu130.sm89.avx512", target, cuda="13.0")
    plan = with_digest(make_plan((make_group(("gpu",), target, (wheel,)),)))
    fleet = fleet_with(tmp_path, plan=plan)
    push(fleet.store, tmp_path / "www")
    assert "SM 8.9, driver 580" in (tmp_path / "www/variants.md").read_text()
