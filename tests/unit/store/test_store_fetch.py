"""Fetching: whole and right, or a sentence."""

from __future__ import annotations

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import Mock

import pytest

from fleetbuild.errors import InstallError
from fleetbuild.store.address_secrets import logins_of
from fleetbuild.store.fetch import fetch

CONTENT = b"a wheel" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Authorization")))
        answers = self.server.answers
        status, body, headers = answers.pop(0) if answers else (200, CONTENT, {})
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        http.answers, http.seen = [], []
        http.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield http
        http.shutdown()
        thread.join()


def get(server, dest, **more):
    pauses = []
    return fetch(f"{server.url}/x.whl", SHA, dest, pause=pauses.append, **more), pauses


def test_a_file_is_downloaded_once(server, tmp_path):
    path, pauses = get(server, tmp_path / "d" / "x.whl")
    assert path.read_bytes() == CONTENT
    assert pauses == []
    get(server, path)
    assert len(server.seen) == 1
    path.write_bytes(b"changed since")
    assert get(server, path)[0].read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == ["x.whl"]


def test_a_download_stops_at_its_next_chunk(server, tmp_path, monkeypatch):
    server.answers += [(200, b"x" * 1_000_000, {})]
    stop = Mock(side_effect=[None, None, KeyboardInterrupt])  # before each try and at each chunk
    monkeypatch.setattr("fleetbuild.store.fetch.check_stopped", stop)
    with pytest.raises(KeyboardInterrupt):
        get(server, tmp_path / "x.whl")
    assert list(tmp_path.iterdir()) == []


def test_temporary_failures_are_retried(server, tmp_path):
    server.answers += [(503, b"", {}), (429, b"", {}), (200, b"short", {"Content-Length": "99"})]
    path, pauses = get(server, tmp_path / "x.whl")
    assert path.read_bytes() == CONTENT
    assert pauses == [1, 2, 4]


def test_definite_failures_are_not_retried(server, tmp_path):
    server.answers += [(404, b"", {})]
    with pytest.raises(InstallError, match="HTTP 404"):
        get(server, tmp_path / "x.whl")
    assert len(server.seen) == 1
    server.answers += [(500, b"", {})] * 4
    with pytest.raises(InstallError, match="HTTP 500"):
        get(server, tmp_path / "x.whl")


def test_changed_content_is_refused_and_removed(server, tmp_path):
    server.answers += [(200, b"something else", {})]
    with pytest.raises(InstallError, match="not the locked file"):
        get(server, tmp_path / "x.whl")
    assert list(tmp_path.iterdir()) == []


def test_an_address_whose_token_is_not_known_is_not_asked(server, tmp_path):
    with pytest.raises(InstallError, match="a token or a signature, which a plan does not hold"):
        fetch("https://host/***host.1***/x.whl", "0" * 64, tmp_path / "x.whl")
    assert server.seen == []


def test_a_login_is_sent_only_to_its_host(server, tmp_path, monkeypatch):
    server.answers += [(302, b"", {"Location": f"http://localhost:{server.server_port}/y"})]
    mine = logins_of([f"http://me:secret@127.0.0.1:{server.server_port}/simple"])
    get(server, tmp_path / "x.whl", credentials=mine)
    assert server.seen[0][1].startswith("Basic ")
    assert server.seen[1] == ("/y", None)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login you password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    netrc.rename(tmp_path / ".netrc")
    (tmp_path / ".netrc").chmod(0o600)
    get(server, tmp_path / "z.whl")
    assert server.seen[2][1].startswith("Basic ")
    (tmp_path / ".netrc").write_text("nonsense")
    get(server, tmp_path / "w.whl")
    assert server.seen[3][1] is None


@pytest.mark.parametrize("index", ["http://{}", "https://{}", "http://{}:1", "https://{}:{}"])
def test_a_login_is_sent_to_no_other_port_and_not_without_https(server, tmp_path, index):
    """An index chooses the addresses of its files, and anybody may listen at another port."""
    index = index.format("me:secret@127.0.0.1", server.server_port)
    get(server, tmp_path / "x.whl", credentials=logins_of([index]))
    assert server.seen[0][1] is None


def test_an_unknown_server_is_an_error(tmp_path):
    with pytest.raises(InstallError, match="cannot be fetched") as caught:
        fetch("http://127.0.0.1:9/x", SHA, tmp_path / "x", pause=lambda _: None)
    assert "Check the network" in caught.value.fix
    with pytest.raises(InstallError, match="cannot be fetched"):
        fetch((tmp_path / "absent").as_uri(), SHA, tmp_path / "x")
    with pytest.raises(InstallError, match="is not a valid file URL"):
        fetch("ftp://x/y", SHA, tmp_path / "x")


def test_a_full_disk_is_reported_as_such(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fleetbuild.store.fetch._once", full)
    with pytest.raises(OSError, match=re.escape(f"No space left on device: '{tmp_path / 'x'}'")):
        fetch("https://x/y", SHA, tmp_path / "x", pause=lambda _: None)


def test_certificates_of_pips_settings_are_trusted(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "absent.pem"))
    with pytest.raises(InstallError, match="cannot be fetched"):
        fetch("https://127.0.0.1:9/x", SHA, tmp_path / "x", pause=lambda _: None)
