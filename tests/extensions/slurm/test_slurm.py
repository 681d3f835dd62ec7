"""`emit slurm`: a real Slurm takes the features, and runs the job on a node of one group."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fleetbuild.emit.emission import Emission, EmittedFiles
from fleetbuild.models import Manifest, Plan
from fleetbuild.models.serving import as_planned
from fleetbuild.store.wheels import Store
from tests.factories.plans import make_group, make_plan, make_target
from tests.factories.processes import free_port

needs_slurm = pytest.mark.skipif(
    shutil.which("slurmctld") is None, reason="needs the Debian packages slurmctld and slurmd"
)
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
NodeName=cpu-1 NodeHostname={host} Port={ports[1]} Features=rack1,fleetbuild:old,fleetbuild.b:old
NodeName=gpu-1 NodeHostname={host} Port={ports[2]} Features=rack2
NodeName=other NodeHostname={host} Port={ports[3]} Features=fleetbuild:old
PartitionName=all Nodes=ALL Default=YES
"""


class Slurm:
    """A controller and three nodes on this machine, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        for name in ("state", "spool-cpu-1", "spool-gpu-1", "spool-other"):
            (folder / name).mkdir()
        text = CONFIGURATION.format(
            host=socket.gethostname(),
            user=getpass.getuser(),
            folder=folder,
            ports=[*{free_port() for _ in range(9)}],  # four that differ
        )
        (folder / "slurm.conf").write_text(text)
        self.daemons = [
            self.start("slurmctld", "-c", "-D"),
            *(self.start("slurmd", "-N", name, "-D") for name in ("cpu-1", "gpu-1", "other")),
        ]

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{'-'.join(command)}.log").open("wb") as log:
            return subprocess.Popen(command, env=self.env, stdout=log, stderr=log)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.env, cwd=self.folder, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    def features(self) -> dict[str, str]:
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %f").stdout.split("\n")
        return dict(sorted(line.split() for line in lines if line))

    def is_idle(self) -> bool:
        return self.run("sinfo", "-h", "-o", "%T").stdout.split() == ["idle"]


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    slurm = Slurm(tmp_path)
    try:
        end = time.monotonic() + 60
        while not slurm.is_idle():
            assert time.monotonic() < end, [log.read_text() for log in tmp_path.glob("*.log")]
            time.sleep(0.2)
        yield slurm
    finally:
        for daemon in slurm.daemons:
            daemon.terminate()
        for daemon in slurm.daemons:
            daemon.wait(30)


def two_groups(folder: Path) -> Plan:
    return make_plan(
        (make_group(("cpu-1",)), make_group(("gpu-1",), make_target(sms=("8.6", "9.0")))),
        install_path=str(folder / "opt"),
    )


def emitted(
    plan: Plan, folder: Path, serving: Mapping[str, Manifest | None] | None = None
) -> EmittedFiles:
    serving = as_planned(plan, works=plan.nodes) if serving is None else serving
    return Emission(plan=plan, serving=serving, store=Store(folder / "store")).write("slurm")


@needs_slurm
def test_nodes_get_the_feature_of_their_group_and_a_job_runs_with_their_release(
    slurm: Slurm, tmp_path: Path
) -> None:
    plan = two_groups(tmp_path)
    python = tmp_path / "opt/releases/first/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$SLURMD_NODENAME ran $0 $*"\n')
    python.chmod(0o755)
    (tmp_path / "opt/current").symlink_to("releases/first")
    emitted(plan, tmp_path).written(tmp_path)

    assert slurm.run("sh", "features.sh").stderr == (
        "features.sh: other keeps its feature, because the plan has no such node.\n"
    )
    features = {
        "cpu-1": "rack1,fleetbuild.b:old,fleetbuild:cpu-avx2-cp311",
        "gpu-1": "rack2,fleetbuild:sm86.sm90-avx2-cp311",
        "other": "fleetbuild:old",
    }
    assert slurm.features() == features
    assert "scontrol update" not in slurm.run("sh", "-x", "features.sh").stderr  # they have them

    either = slurm.run("sbatch", "--wait", "-o", "out", "job.sh", "train.py", "a b")
    assert (either.returncode, (tmp_path / "out").read_text()) == (
        0, f"cpu-1 ran {python} train.py a b\n",
    )  # fmt: skip
    both = slurm.run("sbatch", "--nodes=2", "job.sh", "x")
    assert "configuration is not available" in both.stderr  # no job gets two kinds of nodes
    only = "--constraint=rack2&fleetbuild:sm86.sm90-avx2-cp311"
    slurm.run("sbatch", "--wait", "-o", "out", only, "job.sh", "x")
    assert (tmp_path / "out").read_text() == f"gpu-1 ran {python} x\n"

    names = ("cpu-1.example.org", "cpu-2.example.org", "gpu-1.example.org", "other")
    later = make_plan((make_group(names),))
    served = as_planned(later, works=names[1:3])
    del served["other"]
    emitted(later, tmp_path, {**served, names[0]: None}).written(tmp_path)
    unknown = slurm.run("sh", "features.sh")
    assert unknown.returncode == 1
    assert "Slurm has no node cpu-2.example.org. Use its name in Slurm" in unknown.stderr
    assert slurm.features() == {
        **features, "cpu-1": "rack1,fleetbuild.b:old", "gpu-1": "rack2,fleetbuild:cpu-avx2-cp311",
    }  # fmt: skip

    slurm.run("scontrol", "shutdown")
    alone = slurm.run("sh", "features.sh")
    assert (alone.returncode, alone.stderr.count("\n")) == (1, 1)


def test_a_node_that_is_not_known_keeps_its_features(tmp_path: Path) -> None:
    plan = make_plan((make_group(("a", "b", "n[1-9]")),), release="night")
    served = as_planned(plan, works=plan.nodes)
    files = emitted(plan, tmp_path, {name: served[name] for name in ("a", "n[1-9]")})
    assert "\na fleetbuild.night:cpu-avx2-cp311\nb ?\n'" in files.files["features.sh"]
    assert "-f /opt/fleetbuild/night/current)" in files.files["job.sh"]
    assert files.warnings == (
        "b: what serves there is not known, so features.sh changes nothing.",
        "n[1-9]: no node in Slurm can have such a name.",
    )


def test_without_a_verified_release_features_only_go(tmp_path: Path) -> None:
    files = emitted(make_plan(), tmp_path, {"a": None, "b": None})
    assert "\na -\nb -\n" in files.files["features.sh"]
    assert "job.sh" not in files.files
    assert "No node is known to serve a verified release" in files.warnings[0]
