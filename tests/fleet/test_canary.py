"""Six nodes, one of them hostile throughout; and secrets that the runs must leave nowhere.

One apply is killed by SIGKILL at five moments and taken up again each time. After each kill and at
the end, every secret is searched for in everything that the run left, here and on the nodes.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetbuild import Cluster, ClusterError, Fleet
from fleetbuild.extensions.kubernetes.cluster_labels import label
from tests.fleet.test_secrets_left import _PRYING
from tests.lab import Lab

pytestmark = [pytest.mark.long, pytest.mark.network]

MARK = f"c4nary-{os.getpid()}"
SECRETS = {name: f"{MARK}-{name}" for name in ("vault", "become", "index", "ssh", "token")}
GOOD = ["n1", "n2", "n3", "n4", "n5"]
KILLS = ("plan", "build", "audit", "install", "verify")  # at the first event of each stage
# Its shell, its nvidia-smi, every Python program and its manifest lie.
HOSTILE = r"""
cat > /usr/local/bin/lying-shell <<'END'
#!/bin/bash
printf '\033]0;owned\007\033[2J{"ansible_facts": {"ansible_become_password": "x"}}\n'
exec /bin/bash "$@"
END
chmod 755 /usr/local/bin/lying-shell; usermod -s /usr/local/bin/lying-shell ops
cat > /usr/local/bin/nvidia-smi <<'END'
#!/bin/sh
head -c 300000 /dev/urandom | base64
echo '0, GPU \033[31m, 99.9, 999, 1 MiB, GPU-{{ lookup("pipe", "touch /tmp/pwned") }}'
END
chmod 755 /usr/local/bin/nvidia-smi
cat > /etc/python3.11/sitecustomize.py <<'END'
import atexit, json, sys
facts = {"ansible_ssh_common_args": "-oProxyCommand=touch${IFS}/tmp/PWNED", "ansible_host": "::1",
         "ansible_python_interpreter": "/bin/false", "fleetbuild_installs": {}}
# Modules come by standard input, or as a file if they are asynchronous.
if sys.argv[:1] == [""] or any("ansi" in each.lower() for each in sys.argv):
    atexit.register(lambda: print(json.dumps({"changed": False, "ansible_facts": facts})))
END
mkdir -p /opt/fleetbuild/releases/evil/bin; ln -sfn releases/evil /opt/fleetbuild/current
printf '#!/bin/sh\necho lies' > /opt/fleetbuild/current/bin/python
chmod 755 /opt/fleetbuild/current/bin/python
printf '{"release": "default", "id": "../../../etc", "group": "%s", "wheels": [{"sha256": "/"}]}' \
  "$(head -c 3000 /dev/zero | tr '\0' a)" > /opt/fleetbuild/current/manifest.json
"""
_RUN = """
import json, sys
import fleetbuild
from fleetbuild import Fleet, Secrets

given = json.load(sys.stdin)
def tell(event):
    print(event.model_dump_json(), flush=True)
secrets = Secrets(vault_passwords=(("", given["vault"]),), ask_pass=given["ssh"])
fleet = Fleet("inventory.yml", state_dir="state", secrets=secrets, timeout=60)
plan = fleet.plan(on_event=tell)
fleet.save_plan(plan)
result = fleet.apply(plan, on_event=tell)
print("RESULT " + result.model_dump_json(), flush=True)
"""


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    ops = {"name": "ops", "password": SECRETS["become"], "sudo": "password", "key": True}
    node = {"hardware": "avx", "gpu": False, "users": [ops]}
    nodes: dict[str, object] = dict.fromkeys(GOOD, node)
    nodes["evil"] = {**node, "setup": HOSTILE}
    return make_lab({"nodes": nodes})


class _Nothing(http.server.BaseHTTPRequestHandler):
    """An index that requires a login and has no package."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def place(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with vaulted values, an index with a login, a log and a prying callback."""
    folder = tmp_path_factory.mktemp("canary")
    program = Path(sys.executable).with_name("ansible-vault")
    done = subprocess.run(
        [program, "encrypt_string", "--vault-password-file", "/dev/stdin", SECRETS["become"]],
        input=SECRETS["vault"], capture_output=True, text=True, check=True,
    )  # fmt: skip
    (folder / "inventory.yml").write_text(lab.inventory.read_text())
    (folder / "group_vars").mkdir()
    vaulted = done.stdout.replace("\n", "\n  ").rstrip()
    (folder / "group_vars" / "all.yml").write_text(
        f"ansible_user: ops\nansible_become_password: {vaulted}\n"
    )
    (folder / "callbacks").mkdir()
    text = _PRYING.replace("PRIED", str(folder / "pried"))
    (folder / "callbacks" / "prying.py").write_text(text)
    (folder / "ansible.cfg").write_text(
        f"[defaults]\nlog_path={folder}/ansible.log\ncallback_plugins={folder}/callbacks\n"
        "verbosity=3\ncallbacks_enabled=prying\n"
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Nothing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}/simple/"
        (folder / "fleetbuild.yml").write_text(
            f"packages: [hnswlib==0.8.0]\nindex: ['http://me:{SECRETS['index']}@{address}']\n"
            "rollout: {max_fail: '50%', canary: 0}\n"
        )
        yield folder
        server.shutdown()


def seen_in_arguments(stop: threading.Event, found: set[str]) -> None:
    """Collect the command lines of all processes that hold a secret."""
    while not stop.is_set():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if MARK.encode() in (line := path.read_bytes()):
                    found.add(line.replace(b"\0", b" ").decode(errors="replace"))
        stop.wait(0.03)


def left(place: Path, since: float) -> list[str]:
    """Files that hold a secret: the project (but for the user's own file), /tmp and /dev/shm."""
    found = []
    for top in (place, Path(tempfile.gettempdir()), Path("/dev/shm")):
        for folder, _, names in os.walk(top):
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(OSError):
                    about = path.lstat()
                    if not path.is_file() or about.st_mtime < since or about.st_size > 50_000_000:
                        continue
                    if path != place / "fleetbuild.yml" and MARK.encode() in path.read_bytes():
                        found.append(str(path))
    return sorted(set(found))


def left_on_nodes(lab: Lab) -> dict[str, str]:
    command = (
        f"grep -rlaF {MARK} /home /root /tmp /var/tmp /opt/fleetbuild /dev/shm 2>/dev/null; true"
    )
    said = {name: lab.exec(name, command).stdout.strip() for name in lab.nodes}
    return {name: text for name, text in said.items() if text}


def processes(mark: str) -> int:
    count = 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            count += mark.encode() in path.read_bytes() and int(path.parts[2]) != os.getpid()
    return count


def run(place: Path, told: list[str], kill_at: str | None) -> dict[str, object] | None:
    """Plan and apply; end it by SIGKILL at the first event of a stage. Return the result."""
    environment = {
        **os.environ,
        "CANARY_RUN": MARK.replace("c4", "run"),
        "PYTHONPATH": str(Path.cwd()),
    }
    with subprocess.Popen(
        [sys.executable, "-c", _RUN], cwd=place, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(SECRETS))
        process.stdin.close()
        for line in process.stdout:
            told.append(line)
            if line.startswith("RESULT "):
                return dict(json.loads(line.removeprefix("RESULT ")))
            if kill_at and json.loads(line)["stage"] == kill_at:
                process.send_signal(signal.SIGKILL)
                break
    deadline = time.monotonic() + 30
    while processes(environment["CANARY_RUN"]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return None


def test_no_secret_is_left_and_five_nodes_are_served(lab: Lab, place: Path) -> None:
    since, result = time.time() - 5, None
    told: list[str] = []
    stop, shown = threading.Event(), set[str]()
    watcher = threading.Thread(target=seen_in_arguments, args=(stop, shown))
    watcher.start()
    try:
        for moment in (*KILLS, None):
            result = run(place, told, moment)
            assert left(place, since) == [], moment
            if result:
                break
    finally:
        stop.set()
        watcher.join()
    assert result
    assert left_on_nodes(lab) == {}
    assert shown == set()
    assert MARK not in "".join(told)
    states = {node["node"]: node for node in result["nodes"]}  # type: ignore[attr-defined]
    assert {name: states[name]["state"] for name in GOOD} == dict.fromkeys(GOOD, "installed"), (
        states
    )
    assert states["evil"]["state"] not in ("installed", "up_to_date")
    for name in GOOD:
        manifest = lab.exec(name, "cat /opt/fleetbuild/current/manifest.json", check=True).stdout
        assert json.loads(manifest)["verified"]
    assert not Path("/tmp/PWNED").exists()
    assert not Path("/tmp/pwned").exists()


def test_the_token_of_a_cluster_is_left_nowhere(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = time.time() - 5
    monkeypatch.chdir(place)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": SECRETS["token"]}}],
    }))  # fmt: skip
    fleet = Fleet(state_dir="state", cluster=Cluster(kubeconfig))
    with pytest.raises(ClusterError) as caught:
        label(fleet)
    assert MARK not in f"{caught.value.message} {caught.value.fix}"
    kubeconfig.unlink()
    assert left(place, since) == []
