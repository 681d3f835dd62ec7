"""Connections, and problems that end everything."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable

import pytest

from fleetbuild.errors import ClusterError, ForbiddenError, KubeconfigError
from fleetbuild.extensions.kubernetes.api.client import Client, connect, path_of
from fleetbuild.extensions.kubernetes.api.credentials import Credentials
from fleetbuild.extensions.kubernetes.api.errors import Refusal
from fleetbuild.extensions.kubernetes.api.kubeconfig import Access, User
from fleetbuild.extensions.kubernetes.api.nodes import list_nodes, read
from tests.factories.cluster_api import FakeApi, Say


def test_every_part_of_an_api_path_is_quoted() -> None:
    assert path_of("api", "v1", "nodes", "../a?b") == "/api/v1/nodes/..%2Fa%3Fb"


def test_a_server_below_a_path(api: FakeApi) -> None:
    api.add("a")
    access = Access(f"{api.url}/k8s/clusters/c-1", "c", User(token="a-token"))
    with Client(access, sleep=lambda _: None) as client, pytest.raises(ClusterError):
        list_nodes(client)
    assert api.asked[0].path == "/k8s/clusters/c-1/api/v1/nodes"


@pytest.mark.parametrize(
    ("problem", "error", "said"),
    [
        (Say(403, "no", "Forbidden"), ForbiddenError, "may not list nodes: no"),
        (Say(400, "what?", "BadRequest"), ClusterError, "refused to list /nodes: what?"),
        (Say(503, "", "x"), ClusterError, "HTTP 503"),
    ],
)
def test_a_refused_list_of_nodes_is_an_error(
    client: Client, api: FakeApi, problem: Say, error: type[Exception], said: str
) -> None:
    def refuse(_: object) -> None:
        raise problem

    api.before = refuse
    with pytest.raises(error, match=said):
        list_nodes(client)


def test_a_refused_connection_is_an_error(waits: list[float]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            Client(Access(url, "c"), sleep=waits.append) as client,
            pytest.raises(ClusterError, match="connection refused") as problem,
        ):
            list_nodes(client)
    assert "4 attempts" in problem.value.message
    assert problem.value.exit_code == 3
    assert waits == [0.5, 1.0, 2.0]


def test_an_unknown_server_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    with (
        Client(Access("https://no.such.host", "c"), sleep=lambda _: None) as client,
        pytest.raises(ClusterError, match="its name cannot be resolved"),
    ):
        list_nodes(client)


class served:  # noqa: N801 reads as a word
    """A server of one connection after the other."""

    def __init__(self, behave: Callable[[socket.socket], None]) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=behave, args=(self._server,))

    def __enter__(self) -> int:
        self._thread.start()
        port: int = self._server.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._server.close()


def nodes_of(behave: Callable[[socket.socket], None]) -> list[str]:
    """The nodes that a client lists at a server that behaves so."""
    with (
        served(behave) as port,
        Client(Access(f"http://127.0.0.1:{port}", "c"), sleep=lambda _: None) as client,
    ):
        return list(list_nodes(client))


def answering(*answers: bytes) -> Callable[[socket.socket], None]:
    """Give each connection one of these answers, and close it."""

    def behave(server: socket.socket) -> None:
        for answer in answers:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    return behave


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([b"220 smtp\r\n"] * 4, "did not answer"),
        ([b"HTTP/1.1 404 no\r\nContent-Length: 5\r\n\r\nhello"], "hello"),
    ],
)
def test_an_answer_that_is_not_http_or_not_json_is_an_error(
    answers: list[bytes], said: str
) -> None:
    with pytest.raises(ClusterError, match=said):
        nodes_of(answering(*answers))


NODES = b'{"items": [{"metadata": {"name": "a"}}]}'


def test_answers_in_chunks_come_through_one_connection() -> None:
    def chunked(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            for _ in range(2):
                connection.recv(65536)
                parts = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (NODES[:9], NODES[9:], b""))
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + parts)

    with (
        served(chunked) as port,
        Client(Access(f"http://127.0.0.1:{port}", "c"), sleep=lambda _: None) as client,
    ):
        assert list(list_nodes(client)) == list(list_nodes(client)) == ["a"]


def test_an_answer_that_is_cut_off_is_asked_for_again() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(NODES)
    assert nodes_of(answering(head + NODES[:9], head + NODES)) == ["a"]


@pytest.mark.parametrize(
    ("limit", "value", "head"),
    [
        ("MAX_ANSWER", 3000, b"Content-Length: 1000000000\r\n\r\n"),
        ("MAX_ANSWER", 3000, b"Connection: close\r\n\r\n"),
        ("LONGEST_ANSWER", 0.2, b"Content-Length: 1000000000\r\n\r\n"),
    ],
)
def test_one_answer_without_an_end_is_an_error(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: float, head: bytes
) -> None:
    monkeypatch.setattr(f"fleetbuild.extensions.kubernetes.api.client.{limit}", value)

    def dripping(server: socket.socket) -> None:
        connection, _ = server.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + head)
        with connection, contextlib.suppress(OSError):
            while True:
                connection.sendall(b" " * 100)
                time.sleep(0.01)

    with (
        served(dripping) as port,
        Client(Access(f"http://127.0.0.1:{port}", "c")) as client,
        pytest.raises(ClusterError, match="one answer without an end"),
    ):
        list_nodes(client)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"302 Found\r\nLocation: https://sso/", b"<html>"),
        (b"304 Not Modified", b""),
        (b"200 OK", b"<html>Log in</html>"),
        (b"200 OK", b""),
        (b"200 OK", b'["no", "object"]'),
    ],
)
def test_an_answer_that_is_not_an_api_servers_is_an_error(answer: bytes, said: bytes) -> None:
    head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (answer, len(said))
    with pytest.raises(ClusterError, match="so it is not an API server") as problem:
        nodes_of(answering(head + said))
    assert answer[:3].decode() in problem.value.message
    assert "login page" in problem.value.fix


def test_requests_go_through_the_proxy_of_the_kubeconfig() -> None:
    heard: list[bytes] = []

    def proxy(server: socket.socket) -> None:
        connection, _ = server.accept()
        heard.append(connection.recv(65536))
        connection.sendall(b"HTTP/1.1 407 who are you\r\n\r\n")
        connection.close()

    with served(proxy) as port:
        access = Access("https://far.away", "c", proxy=f"http://me:p%40ss@127.0.0.1:{port}")
        connection = connect(access, Credentials(), 5)
        with pytest.raises(OSError, match="407"):
            connection.request("GET", "/")
        connection.close()
    assert heard[0].startswith(b"CONNECT far.away:443")
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in heard[0]


def test_requests_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "near")
    assert connect(Access("https://far", "c"), Credentials(), 5).host == "proxy"
    assert connect(Access("https://near", "c"), Credentials(), 5).host == "near"
    with pytest.raises(KubeconfigError, match="socks5://proxy"):
        connect(Access("https://far", "c", proxy="socks5://proxy:1"), Credentials(), 5)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "10.96.0.1"])
def test_no_proxy_for_this_machine_and_for_networks_in_no_proxy(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "near, 10.96.0.0/12")
    assert connect(Access(f"https://{host}", "c"), Credentials(), 5).host == host.strip("[]")
    assert connect(Access("https://10.0.0.1", "c"), Credentials(), 5).host == "proxy"


def test_a_proxy_url_for_an_http_server_is_an_error() -> None:
    access = Access("http://far", "c", proxy="http://proxy:3128")
    with pytest.raises(KubeconfigError, match="proxy-url of http://far"):
        connect(access, Credentials(), 5)


@pytest.mark.parametrize(
    ("authority", "certificate"), [(b"no PEM", None), (b"\xff", None), (None, b"no PEM")]
)
def test_invalid_certificates_are_an_error(
    authority: bytes | None, certificate: bytes | None
) -> None:
    access = Access("https://x", "c", authority=authority)
    with pytest.raises(KubeconfigError, match="or they do not match"):
        connect(access, Credentials(certificate=certificate, key=certificate), 5)


def test_insecure_skip_tls_verify_turns_verification_off(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []
    real = ssl.create_default_context

    def noted(**given: str) -> ssl.SSLContext:
        made.append(real(**given))
        return made[-1]

    monkeypatch.setattr(ssl, "create_default_context", noted)
    connect(Access("https://x", "c", verify=False), Credentials(), 5)
    assert made[-1].verify_mode == ssl.CERT_NONE
    connect(Access("https://x", "c"), Credentials(), 5)
    assert made[-1].verify_mode == ssl.CERT_REQUIRED
    assert not made[-1].verify_flags & ssl.VERIFY_X509_STRICT


def test_an_empty_node_document_is_read() -> None:
    node = read({})
    assert (node.name, node.labels, node.owner("x")) == ("", {}, ())


@pytest.mark.parametrize("proxy", ["http://p:abc", "http://me:secret@p:99999", "https://p"])
def test_an_unsupported_proxy_is_reported_without_its_password(proxy: str) -> None:
    with pytest.raises(KubeconfigError, match="The proxy") as problem:
        connect(Access("https://far", "c", proxy=proxy), Credentials(), 5)
    assert "secret" not in problem.value.message


def pages(client: Client, monkeypatch: pytest.MonkeyPatch, *answers: object) -> list[object]:
    """Let the client's GETs have these answers, one after the other; return the queries."""
    asked: list[object] = []
    rest = iter(answers)

    def get(_path: str, **query: str) -> object:
        asked.append(query.get("continue"))
        answer = next(rest)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(client, "get", get)
    return asked


def page(onward: object, *names: str) -> dict[str, object]:
    return {"items": [{"metadata": {"name": name}} for name in names],
            "metadata": {"continue": onward}}  # fmt: skip


def test_a_list_without_an_end_is_an_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    pages(client, monkeypatch, *(page(f"t{number}", "a") for number in range(1000)))
    with pytest.raises(ClusterError, match="without an end: 400 items so far"):
        list_nodes(client)


def test_a_list_that_expires_is_read_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Refusal(410, {"message": "The provided continue parameter is too old"})
    asked = pages(client, monkeypatch, page("t", "a"), gone, page("u", "a"), page("", "b"))
    assert sorted(list_nodes(client)) == ["a", "b"]
    assert asked == [None, "t", None, "u"]
    pages(client, monkeypatch, *[page("t", "a"), gone] * 5)
    with pytest.raises(ClusterError, match="too old"):
        list_nodes(client)


@pytest.mark.parametrize("items", [[None], "x", [{"metadata": {"name": "a"}}, 1]])
def test_an_item_of_another_type_than_an_object_is_an_error(
    client: Client, monkeypatch: pytest.MonkeyPatch, items: object
) -> None:
    pages(client, monkeypatch, {"items": items})
    with pytest.raises(ClusterError, match="something is not an object"):
        list_nodes(client)
