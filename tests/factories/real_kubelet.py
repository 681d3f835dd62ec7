"""A real kubelet with containerd and a controller manager, as the one Node of a real API server.

Needs root, and beside kube-apiserver in the folder that KUBEBUILDER_ASSETS names: kubelet,
kube-controller-manager, kube-scheduler, containerd, containerd-shim-runc-v2, ctr, and a folder cni
with CNI's plugins ptp, host-local and loopback. runc comes from the machine, and kubectl from the
folder or the machine. `node_features` needs nfd-master and nfd-worker too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.factories.data import NFD_CRDS
from tests.factories.processes import free_port
from tests.factories.real_api import ASSETS, RealApi, eventually, scheduling
from tests.lab.podman import podman

PROGRAMS = ("kubelet", "kube-controller-manager", "kube-scheduler", "containerd", "ctr", "cni/ptp")
KUBECTL = shutil.which("kubectl", path=f"{ASSETS}:{os.environ['PATH']}") if ASSETS else None
PAUSE = "localhost/fleetbuild-test-pause:1"
NODE = "worker"
SUBNET, GATEWAY = "10.231.77.0/24", "10.231.77.1"
ADDRESS = "10.231.78.1"  # the Node's, of the loopback interface: pods and the API server reach it
# What a kubelet changes on its machine; it is put back.
TUNABLES = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")


def missing(*more: str) -> str:
    """Return why no kubelet can run here, or ""."""
    if not ASSETS:
        return "KUBEBUILDER_ASSETS names no folder with a kube-apiserver"
    absent = [name for name in (*PROGRAMS, *more) if not Path(ASSETS, name).exists()]
    if absent:
        return f"KUBEBUILDER_ASSETS has no {', '.join(absent)}"
    return "" if os.geteuid() == 0 and shutil.which("runc") else "a kubelet needs root and runc"


def make_pause(folder: Path) -> None:
    """Make the image of pods' first container: a program that waits to be ended."""
    waits = "#include <signal.h>\n#include <unistd.h>\nstatic void end(int s) { _exit(s == 0); }\n"
    main = "int main() { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }\n"
    (folder / "pause.c").write_text(waits + main)
    for command in (
        ["gcc", "-static", "-O2", "pause.c", "-o", "pause"],
        ["tar", "cf", "p.tar", "pause"],
    ):
        subprocess.run(command, cwd=folder, check=True)
    podman("import", "--change", 'ENTRYPOINT ["/pause"]', str(folder / "p.tar"), PAUSE)


class Containerd:
    """A containerd of its own, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "c.sock"

    def load(self, archive: Path) -> None:
        """Import images of a docker archive, as kubelets see them."""
        self._ctr("images", "import", str(archive))

    def _ctr(self, *words: str) -> None:
        command = [str(Path(ASSETS or "", "ctr")), "-a", str(self.socket), "-n", "k8s.io", *words]
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def kubelet(api: RealApi) -> Iterator[Containerd]:
    """Run all programs until the block ends; the Node is ready."""
    folder = Path(tempfile.mkdtemp(prefix="fbk", dir="/run"))  # paths of sockets are short
    config = api.kubeconfig(folder)
    containerd = Containerd(folder)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(_unmount, folder)
        stack.enter_context(_tunables())
        stack.enter_context(_address())
        stack.enter_context(scheduling(config))
        stack.enter_context(_running(folder, "kube-controller-manager", *_controllers(api, config)))
        (folder / "containerd.toml").write_text(_containerd_config(folder))
        _cni(folder / "net")
        stack.enter_context(_running(folder, "containerd", "-c", str(folder / "containerd.toml")))
        eventually(containerd.socket.exists)
        stack.callback(_kill_containers, folder)
        (folder / "kubelet.json").write_text(json.dumps(_kubelet_config(folder)))
        stack.enter_context(_running(folder, "kubelet", *_kubelet_words(folder, config)))
        eventually(lambda: _is_ready(api))
        yield containerd


@contextmanager
def node_features(api: RealApi) -> Iterator[None]:
    """Run nfd-worker on the Node, and nfd-master, until the block ends; the Node was looked at."""
    api.define(NFD_CRDS.read_text(encoding="utf-8"))
    folder = api.folder / "nfd"
    folder.mkdir()
    words = [f"-kubeconfig={api.kubeconfig(folder)}", "-config=/none", "-port=0"]
    reports = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/default/nodefeatures"
    with (
        _running(folder, "nfd-master", *words),
        _running(folder, "nfd-worker", *words, "-no-owner-refs"),
    ):
        eventually(lambda: api.ask("GET", reports)["items"])
        yield


@contextmanager
def _running(folder: Path, program: str, *words: str) -> Iterator[None]:
    path = f"{ASSETS}:{os.environ['PATH']}:/usr/sbin:/sbin"
    environment = {"PATH": path, "NODE_NAME": NODE, "KUBERNETES_NAMESPACE": "default"}
    with (folder / f"{program}.log").open("wb") as log:
        started = subprocess.Popen(
            [str(Path(ASSETS or "", program)), *words],
            stdout=log, stderr=log, cwd=folder, env={**os.environ, **environment},
        )  # fmt: skip
        try:
            yield
        finally:
            started.terminate()
            try:
                started.wait(10)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


def _is_ready(api: RealApi) -> bool:
    node = api.ask("GET", f"/api/v1/nodes/{NODE}")
    states = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    return states.get("Ready") == "True" and not node["spec"].get("taints")


def _controllers(api: RealApi, config: Path) -> list[str]:
    return [
        f"--kubeconfig={config}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={api.folder / 'sa.key'}",
    ]


def _kubelet_words(folder: Path, config: Path) -> list[str]:
    return [
        f"--config={folder / 'kubelet.json'}",
        f"--kubeconfig={config}",
        f"--hostname-override={NODE}",
        f"--node-ip={ADDRESS}",
        f"--root-dir={folder / 'kubelet'}",
    ]


def _kubelet_config(folder: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{folder / 'c.sock'}",
        "address": ADDRESS,
        "port": free_port(),
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi"},
        "podLogsDir": str(folder / "logs"),
        "volumePluginDir": str(folder / "plugins"),
        "staticPodPath": "",
        "resolvConf": "",
    }


def _containerd_config(folder: Path) -> str:
    return f"""\
version = 3
root = "{folder}/data"
state = "{folder}/state"
oom_score = 0
[grpc]
address = "{folder}/c.sock"
[ttrpc]
address = "{folder}/t.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{ASSETS}/cni"]
conf_dir = "{folder}/net"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


def _cni(folder: Path) -> None:
    folder.mkdir()
    routes = [{"dst": f"{ADDRESS}/32"}]
    leases = {"type": "host-local", "subnet": SUBNET, "dataDir": str(folder / "leases")}
    plugins = [{"type": "ptp", "ipam": {**leases, "routes": routes}}]
    network = {"cniVersion": "1.0.0", "name": "test", "plugins": plugins}
    (folder / "10-test.conflist").write_text(json.dumps(network))


@contextmanager
def _address() -> Iterator[None]:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    change = partial(subprocess.run, env={**os.environ, "PATH": path}, check=True)
    change(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"])
    try:
        yield
    finally:
        change(["ip", "address", "del", f"{ADDRESS}/32", "dev", "lo"])


@contextmanager
def _tunables() -> Iterator[None]:
    files = [Path("/proc/sys", name) for name in TUNABLES]
    before = [file.read_text() for file in files]
    yield
    for file, text in zip(files, before, strict=True):
        file.write_text(text)


def _kill_containers(folder: Path) -> None:
    """End what the shims of this containerd run: they outlive it."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
            if b"containerd-shim" in words and str(folder).encode() in words:
                for child in (process / "task").glob("*/children"):
                    for pid in child.read_text().split():
                        os.kill(int(pid), 9)
                time.sleep(0.2)
                os.kill(int(process.name), 9)
        except (OSError, ProcessLookupError):
            continue


def _unmount(folder: Path) -> None:
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    for line in reversed(mounts):
        where = line.split()[1]
        if where.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", where], check=False, capture_output=True)
