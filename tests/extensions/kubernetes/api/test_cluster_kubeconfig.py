"""Which API server, and which login: as kubectl reads it."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetbuild.errors import ClusterError, KubeconfigError
from fleetbuild.extensions.kubernetes.api import kubeconfig as module
from fleetbuild.extensions.kubernetes.api.client import Client
from fleetbuild.extensions.kubernetes.api.credentials import log_in, renewable
from fleetbuild.extensions.kubernetes.api.kubeconfig import Access, find_access
from fleetbuild.extensions.kubernetes.api.nodes import list_nodes
from tests.factories.cluster_api import TOKEN, FakeApi

KIND = "client.authentication.k8s.io/v1"


def config(name: Any = "one", user: Any = None, **cluster: Any) -> dict[str, Any]:
    return {
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **cluster}}],
        "users": [{"name": name, "user": {"token": "secret"} if user is None else user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_the_kubeconfig_is_found_in_the_usual_place(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", config())
    access = find_access()
    assert (access.server, access.context, access.user.name) == ("https://one:6443", "one", "one")
    assert log_in(access).authorization == "Bearer secret"
    assert "secret" not in repr(access)
    assert "secret" not in repr(log_in(access))


def test_several_kubeconfigs_are_merged_and_the_first_value_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "first", {**config("one"), "current-context": ""})
    second = write(tmp_path / "second", config("two"))
    third = write(tmp_path / "third", config("one", server="https://other"))
    missing = tmp_path / "missing"
    monkeypatch.setenv("KUBECONFIG", f"{first}:{missing}::{second}:{third}")
    assert find_access().server == "https://two:6443"
    assert find_access(context="one").server == "https://one:6443"
    assert find_access(third).server == "https://other"


def test_relative_paths_start_at_their_kubeconfig(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    user = {"client-certificate": "cert", "client-key": str(tmp_path / "key")}
    path = write(tmp_path / "config", config(user=user, **{"certificate-authority": "ca"}))
    access = find_access(path)
    assert access.authority == b"ca"
    assert (access.user.certificate, access.user.key) == (b"cert", b"key")


def test_inline_data_takes_precedence_over_files(tmp_path: Path) -> None:
    data = base64.b64encode(b"authority").decode()
    cluster = {
        "certificate-authority-data": data,
        "certificate-authority": "nowhere",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "name",
        "proxy-url": "http://proxy:3128",
    }
    user = {"as": "them", "as-groups": ["a", "b"]}
    access = find_access(write(tmp_path / "config", config(user=user, **cluster)))
    assert access.authority == b"authority"
    assert (access.verify, access.server_name) == (False, "name")
    assert access.proxy == "http://proxy:3128"
    assert access.user.impersonate_groups == ("a", "b")


def test_in_a_pod_the_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    with pytest.raises(KubeconfigError, match="service account"):
        find_access()
    (tmp_path / "ca.crt").write_text("ca")
    (tmp_path / "token").write_text("first\n")
    access = find_access()
    assert access.server == "https://[fd00::1]:443"
    assert log_in(access).authorization == "Bearer first"
    (tmp_path / "token").write_text("second")
    assert renewable(access.user)
    assert log_in(access).authorization == "Bearer second"


@pytest.mark.parametrize(
    ("document", "context", "said"),
    [
        ("[", None, "not valid YAML"),
        ("[]", None, "current context"),
        ("3", None, "config: must be keys with values"),
        ("[" * 3000, None, "more than 100 brackets"),
        ("clusters: 5", None, "clusters: must be a list"),
        ("clusters: [3]", None, "clusters.0: must be keys with values"),
        ("users: [{name: a, user: 3}]", None, "users.0.user: must be keys with values"),
        ("current-context: [a]", None, "current-context: must be a text"),
        (
            "contexts: [{context: {cluster: [a]}}]",
            None,
            "contexts.0.context.cluster: must be a text",
        ),
        ("contexts: [{context: {user: [a]}}]", None, "contexts.0.context.user: must be a text"),
        (config(), "other", "no context 'other'; it has: one"),
        ({**config(), "clusters": []}, None, "names a cluster that is not defined"),
        ({**config(), "users": []}, None, "names a user that is not defined"),
        (config(server="one:6443"), None, "not a valid API server address"),
        (config(user={"auth-provider": {"name": "gcp"}}), None, "auth-provider"),
        (config(user={"client-key-data": "?"}), None, "not base64"),
        (config(user={"client-key": "nowhere"}), None, "cannot be read"),
        (config(user={"client-key": "no\0file"}), None, "the file name is invalid"),
        (config(server="https://one:99999"), None, "not a valid API server address"),
        (config(server="https://one:abc"), None, "not a valid API server address"),
        (config(server="https://[::1"), None, "not a valid API server address"),
        (config(server="https://one two"), None, "not a valid API server address"),
        (config(server="https://a..b"), None, "not a valid API server address"),
        (config(**{"tls-server-name": "a..b"}), None, "not a valid tls-server-name"),
        (config(**{"certificate-authority": 5}), None, "certificate-authority: must be a text"),
        (config(**{"insecure-skip-tls-verify": "false"}), None, "verify: must be true or false"),
        (config(**{"proxy-url": 5}), None, "proxy-url: must be a text"),
        (config(user={"token": 5}), None, "token: must be a text"),
        (config(user={"tokenFile": 5}), None, "tokenFile: must be a text"),
        (config(user={"exec": "login"}), None, "exec: must be keys with values"),
        (config(user={"exec": {"env": [{"value": "a"}]}}), None, "env.0.name: is missing"),
        (config(user={"as": "me", "as-groups": "text"}), None, "as-groups: must be a list"),
        (config(user={"as": "me\nX: y"}), None, "printable ASCII"),
        (config(user={"as": "me", "as-groups": ["a\n", "b"]}), None, "printable ASCII"),
        (config(user={"as-groups": ["a"]}), None, "without `as`"),
    ],
)
def test_every_error_has_a_reason_and_a_fix(
    tmp_path: Path, document: Any, context: str | None, said: str
) -> None:
    path = tmp_path / "config"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    with pytest.raises(KubeconfigError, match=said) as problem:
        find_access(path, context)
    assert problem.value.fix
    assert problem.value.exit_code == 2


@pytest.mark.parametrize("token", ["a\nb", "a\x7f", "тайна"])
def test_a_token_with_a_newline_is_refused(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token)
    script = credential(token=token).replace("\\", "\\\\")
    for user in ({"token": token}, {"tokenFile": "token"}, {"exec": command(tmp_path, script)}):
        access = find_access(write(tmp_path / "config", config(user=user)))
        with pytest.raises(KubeconfigError, match="one's token contains") as problem:
            log_in(access)
        assert token not in problem.value.message


def test_no_secret_is_shown(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError) as problem:
        find_access(write(tmp_path / "config", config(user={"token": 12345})))
    assert "12345" not in problem.value.message


def test_null_values_count_as_unset(tmp_path: Path) -> None:
    user = {"token": "t", "tokenFile": None, "as-groups": None}
    document = config(user=user, **{"proxy-url": None, "insecure-skip-tls-verify": None})
    access = find_access(write(tmp_path / "config", {**document, "preferences": None}))
    assert (access.verify, access.proxy) == (True, None)
    assert log_in(access).authorization == "Bearer t"


def test_a_variable_without_a_value_is_empty(tmp_path: Path) -> None:
    token = credential(token="$A.").replace("'", "").replace('"', '\\"')
    access = exec_access(tmp_path, token, env=[{"name": "A"}])
    assert log_in(access).authorization == "Bearer ."


def test_a_missing_kubeconfig_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="No kubeconfig found"):
        find_access()
    with pytest.raises(KubeconfigError, match="The kubeconfig /"):
        find_access(tmp_path / "mine")
    unreadable = tmp_path / "binary"
    unreadable.write_bytes(b"\xff")
    with pytest.raises(KubeconfigError, match="cannot be read"):
        find_access(unreadable)


def test_a_context_without_a_user_sends_no_credentials(tmp_path: Path) -> None:
    document = {**config(), "contexts": [{"name": "one", "context": {"cluster": "one"}}]}
    access = find_access(write(tmp_path / "config", document))
    assert log_in(access).authorization is None
    assert not renewable(access.user)


def command(folder: Path, script: str, **more: Any) -> dict[str, Any]:
    program = folder / "bin" / "login"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(stat.S_IRWXU)
    # A relative path starts at the kubeconfig.
    return {"apiVersion": KIND, "command": "bin/login", **more}


def exec_access(folder: Path, script: str, **more: Any) -> Access:
    user = {"exec": command(folder, script, **more)}
    return find_access(write(folder / "config", config(user=user)))


def credential(**status: str) -> str:
    said = {"apiVersion": KIND, "kind": "ExecCredential", "status": status}
    return f"echo '{json.dumps(said)}'"


def test_an_exec_command_gives_a_token(tmp_path: Path) -> None:
    access = exec_access(tmp_path, credential(token="t"))
    assert log_in(access).authorization == "Bearer t"
    assert renewable(access.user)


def test_an_exec_command_gives_a_certificate(tmp_path: Path) -> None:
    script = credential(clientCertificateData="cert", clientKeyData="key")
    made = log_in(exec_access(tmp_path, script))
    assert (made.authorization, made.certificate, made.key) == (None, b"cert", b"key")


def test_an_exec_command_gets_its_environment(tmp_path: Path) -> None:
    script = (
        f'echo "$1 $REGION" > args; echo "$KUBERNETES_EXEC_INFO" > info; {credential(token="t")}'
    )
    user = {
        "exec": command(
            tmp_path,
            f"cd {tmp_path}; {script}",
            args=["get"],
            env=[{"name": "REGION", "value": "north"}],
            provideClusterInfo=True,
        )
    }
    data = base64.b64encode(b"ca").decode()
    extensions = [
        {"name": "minikube", "extension": 3},
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
    ]
    cluster = {
        "certificate-authority-data": data, "tls-server-name": "name", "proxy-url": "http://p",
        "extensions": extensions,
    }  # fmt: skip
    log_in(find_access(write(tmp_path / "config", config(user=user, **cluster))))
    assert (tmp_path / "args").read_text() == "get north\n"
    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"]["interactive"] is False
    assert info["spec"]["cluster"] == {
        "server": "https://one:6443",
        "insecure-skip-tls-verify": False,
        "certificate-authority-data": data,
        "tls-server-name": "name",
        "proxy-url": "http://p",
        "config": {"audience": "a"},
    }


def test_an_exec_command_hears_whether_it_may_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; {credential(token="t")}'
    for terminal, mode, asks in ((True, "Never", False), (True, "IfAvailable", True)):
        monkeypatch.setattr("sys.stdin", Terminal(terminal))
        log_in(exec_access(tmp_path, script, interactiveMode=mode))
        assert json.loads((tmp_path / "info").read_text())["spec"]["interactive"] is asks
    monkeypatch.setattr("sys.stdin", Terminal(False))
    with pytest.raises(KubeconfigError, match="needs a terminal"):
        log_in(exec_access(tmp_path, script, interactiveMode="Always"))


class Terminal:
    def __init__(self, is_terminal: bool) -> None:
        self.isatty = lambda: is_terminal


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "its exit code was 3"),
        ("echo hello", "no ExecCredential"),
        ("echo '{\"status\": 3}'", "no ExecCredential"),
        (credential(), "neither a token"),
        (credential(clientCertificateData="cert"), "neither a token"),
        ("sleep 5", "did not end within"),
    ],
)
def test_a_failing_exec_command_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setattr("fleetbuild.extensions.kubernetes.api.credentials.COMMAND_TIMEOUT", 0.5)
    with pytest.raises(ClusterError, match=said) as problem:
        log_in(exec_access(tmp_path, script))
    assert problem.value.exit_code == 3


def test_an_exec_command_that_cannot_run_is_an_error(tmp_path: Path) -> None:
    access = exec_access(tmp_path, "", command="no-such-tool", installHint="Get it there.")
    with pytest.raises(KubeconfigError, match="not installed") as problem:
        log_in(access)
    assert problem.value.fix == "Get it there."
    with pytest.raises(ClusterError, match="ermission"):
        log_in(exec_access(tmp_path, "", command="./config"))
    with pytest.raises(KubeconfigError, match="v1alpha1"):
        log_in(exec_access(tmp_path, "", apiVersion="client.authentication.k8s.io/v1alpha1"))


def test_a_missing_token_file_is_an_error(tmp_path: Path) -> None:
    user = {"tokenFile": "token"}
    access = find_access(write(tmp_path / "config", config(user=user)))
    with pytest.raises(KubeconfigError, match="cannot be read from"):
        log_in(access)


def test_credentials_are_renewed_once_when_they_expire(tmp_path: Path, api: FakeApi) -> None:
    api.add("a")
    count = tmp_path / "count"
    script = (
        f'echo x >> {count}; if [ "$(wc -l < {count})" = 1 ]; then {credential(token="old")};'
        f" else {credential(token=TOKEN)}; fi"
    )
    kubeconfig = api.kubeconfig(tmp_path, exec=command(tmp_path, script))
    with Client(find_access(kubeconfig)) as client:
        assert list(list_nodes(client)) == ["a"]
        assert list(list_nodes(client)) == ["a"]
    assert count.read_text() == "x\nx\n"


def test_impersonation_headers_are_sent(tmp_path: Path, api: FakeApi) -> None:
    user = {
        "token": TOKEN,
        "as": "Jürgen",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"example.com/scope": ["x", "y"]},
    }
    with Client(find_access(api.kubeconfig(tmp_path, **user))) as client:
        list_nodes(client)
    headers = api.asked[0].headers
    assert headers["Impersonate-User"].encode("latin-1").decode() == "Jürgen"
    assert headers["Impersonate-Uid"] == "7"
    assert headers.get_all("Impersonate-Group") == ["a", "b"]
    assert headers.get_all("Impersonate-Extra-example.com%2Fscope") == ["x", "y"]
