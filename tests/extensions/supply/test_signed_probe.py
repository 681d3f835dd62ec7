"""What the probe says about the serving release's signature, on a node with allowed signers."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from fleetbuild.apply.status import compare_releases
from fleetbuild.extensions.supply.signing import text_of
from fleetbuild.models import Facts, Manifest
from fleetbuild.probe.parsing.release import Releases, read_release

SCRIPT = Path(__file__).parents[3] / "fleetbuild/probe/script.sh"
FUNCTION = re.search(r"^release_signature\(\) \{\n.*?^\}\n", SCRIPT.read_text(), re.M | re.S)
MANIFEST = {
    "format_version": 1,
    "release": "default",
    "id": "r1",
    "group": "g",
    "python": "/usr/bin/python3",
    "wheels": [],
    "verified": True,
    "files_sha256": "0" * 64,
}


class Node:
    """A release, and the keys of two signers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.signers = folder, folder / "allowed_signers"
        self.release = folder / "releases/r1"
        self.release.mkdir(parents=True)
        for name in ("one", "two"):
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(made, check=True)
        self.allow("one")

    def allow(self, *names: str) -> None:
        keys = (
            f"{name}@x {(self.folder / name).with_suffix('.pub').read_text()}" for name in names
        )
        self.signers.write_text("".join(keys))

    def sign(
        self,
        name: str,
        release_id: str = "r1",
        namespace: str = "release@fleetbuild.dev",
        **more: str | int,
    ) -> None:
        statement = self.release / "manifest.json.signed"
        document = {"counter": 1, **more, "manifest": {"id": release_id}, "wheels": {}}
        statement.write_text(text_of(document))
        statement.with_name("manifest.json.signed.sig").unlink(missing_ok=True)
        subprocess.run(
            ["ssh-keygen", "-q", "-Y", "sign", "-f", str(self.folder / name), "-n", namespace,
             str(statement)],
            check=True, capture_output=True,
        )  # fmt: skip

    def probed(self) -> Releases:
        assert FUNCTION is not None
        done = subprocess.run(
            ["sh", "-c", f"signers={self.signers}\n{FUNCTION[0]}\nrelease_signature"],
            cwd=self.release, capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines = f"release default\n{done.stdout}record {'0' * 64}\n"
        return read_release({"release": json.dumps(MANIFEST), "release-files": lines})


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_signed_release_names_its_signer(node: Node) -> None:
    node.sign("one")
    found = node.probed()
    assert found.signed_by == {"default": "one@x"}
    assert found.damaged == {}
    assert found.manifests["default"].verified


def test_a_node_without_signers_asks_for_no_signature(node: Node) -> None:
    node.signers.unlink()
    assert node.probed()[:3] == ({"default": Manifest.model_validate(MANIFEST)}, {}, {})


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("unsigned", "it is not signed, and this node accepts only signed releases"),
        ("a stranger", "its signature is not made by a signer that this node allows now"),
        ("signer removed", "its signature is not made by a signer that this node allows now"),
        ("another release", "its signature is not made by a signer that this node allows now"),
        ("another fleet", "its signature is not made by a signer that this node allows now"),
        ("another purpose", "its signature is not made by a signer that this node allows now"),
        ("changed", "its signature is not made by a signer that this node allows now"),
    ],
)
def test_a_release_without_a_valid_signature_is_drift_and_made_again(
    node: Node, state: str, sentence: str
) -> None:
    if state == "a stranger":
        node.sign("two")
    elif state == "signer removed":
        node.sign("one")
        node.allow("two")
    elif state == "another release":
        node.sign("one", "r0")
    elif state == "another purpose":
        node.sign("one", namespace="provenance@fleetbuild.dev")
    elif state == "another fleet":
        only = 'namespaces="release.production@fleetbuild.dev"'
        line = node.signers.read_text().replace("one@x ", f"one@x {only} ")
        node.signers.write_text(line)
        node.sign("one", namespace="release.production@fleetbuild.dev", fleet="production")
        assert node.probed().signed_by == {"default": "one@x"}
        node.sign("one", namespace="release.staging@fleetbuild.dev", fleet="staging")
    elif state == "changed":
        node.sign("one")
        file = node.release / "manifest.json.signed"
        file.write_text(file.read_text().replace('"counter":1', '"counter":2'))
    found = node.probed()
    assert found.damaged == {"default": sentence}
    assert not found.manifests["default"].verified  # so the plan makes it again
    facts = Facts(state="ok", release=found.manifests, damaged=found.damaged)
    status = compare_releases(["a"], {"a": facts}, release="default", expected={}, probed={})["a"]
    assert status.drift == "damaged"
    assert sentence in status.sentence
