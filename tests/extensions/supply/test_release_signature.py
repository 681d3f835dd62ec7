"""A node with a file of allowed signers: which releases it makes, switches to and goes back to."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fleetbuild.extensions.supply import signing as sign_releases
from fleetbuild.extensions.supply.signing import ReleaseSigner, Signer
from tests.factories.role_modules import ALONE, plugin
from tests.unit.roles.test_release_repair import PYTHON

signature_of = plugin("module_utils.release_signature")


class Node:
    """A node with allowed signers, and the calls that the role makes there."""

    def __init__(self, release: ModuleType, folder: Path) -> None:
        self.release, self.root = release, release.Root(str(folder / "fb"))
        self.folder, self.time = folder, 1000
        self.python = folder / "python"
        self.python.write_text(PYTHON.replace("ln -s /bin/sh", "ln -s /bin/true"))  # its pip
        self.python.chmod(0o755)
        self.signers = folder / "etc" / "allowed_signers"
        self.signers.parent.mkdir()

    def key(self, name: str) -> Path:
        file = self.folder / name
        if not file.exists():
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file]
            subprocess.run(made, check=True)
        return file

    def allow(self, *names: str, options: str = "") -> None:
        lines = [
            f"{name}@example.org {options} {self.key(name).with_suffix('.pub').read_text()}"
            for name in names
        ]
        self.signers.write_text("".join(lines))
        self.signers.chmod(0o644)

    def params(
        self,
        name: str,
        by: str = "ann",
        fleet: str | None = None,
        group: str = "g",
        **other: Any,
    ) -> dict[str, Any]:
        """Return the parameters of the module for a release of one wheel, signed."""
        self.time += 10
        wheel = f"wheel of {name}".encode()
        sha256 = hashlib.sha256(wheel).hexdigest()
        staging = Path(self.root.path, "wheels")
        (staging / sha256).mkdir(parents=True, exist_ok=True)
        (staging / sha256 / "w.whl").write_bytes(wheel)
        manifest = {"id": name, "release": "default", "group": group}
        manifest["wheels"] = [{"sha256": sha256}]
        about = {
            "root": self.root.path, "manifest": manifest, "plan": "0f", "wheels": {"w.whl": sha256},
            **other,
        }  # fmt: skip
        sign = ReleaseSigner(Signer(self.key(by)), lambda: self.time, fleet)
        statement, signature = sign(about)
        return {
            **ALONE,
            "release_id": name, "staging": str(staging), "keep": 3, "in_use": {},
            "python": str(self.python), "manifest": {**manifest, "python": str(self.python)},
            "wheels": [{"file": "w.whl", "sha256": sha256}],
            "statement": statement, "signature": signature,
        }  # fmt: skip

    def install(self, params: dict[str, Any]) -> None:
        params = {**params, "counter": self.release.begin(self.root, params, False)["counter"]}
        if not self.release.look(self.root, params)["complete"]:
            self.release.make(self.root, params, False)
        path = Path(self.root[params["release_id"]], "manifest.json")
        path.write_text(path.read_text().replace('"wheels"', '"verified": true, "wheels"', 1))
        self.release.activate(self.root, params, False)

    def refused(self, params: dict[str, Any], match: str) -> Any:
        """Check that each step by itself refuses these parameters, and that nothing changed."""
        before = self.root.serving()
        there = self.root.manifest(params["release_id"]) is not None
        activate = [self.release.activate] if there else []
        for step in (self.release.begin, self.release.make, *activate):
            with pytest.raises(self.release.Problem, match=match) as caught:
                step(self.root, params, False)
            assert caught.value.fix
        assert self.root.serving() == before
        return caught.value


@pytest.fixture
def node(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(release, tmp_path)
    monkeypatch.setattr(signature_of, "SIGNERS", str(node.signers))
    monkeypatch.setattr(signature_of, "OWNER", os.geteuid())
    node.allow("ann")
    return node


def test_a_signed_release_is_made_and_serves(node: Node) -> None:
    node.install(node.params("a"))
    node.install(node.params("b"))
    assert node.root.serving() == "b"
    assert Path(node.root.path, ".signed").read_text() == "1020\n"
    assert node.release.look(node.root, node.params("b"))["complete"]
    assert not node.release.activate(node.root, node.params("b"), False)["changed"]


def test_a_node_without_the_file_checks_and_keeps_nothing(node: Node) -> None:
    node.signers.unlink()
    node.install({**node.params("a"), "statement": {}, "signature": ""})
    node.install(node.params("b", by="eve"))
    assert node.root.serving() == "b"
    assert not Path(node.root.path, ".signed").exists()
    assert not Path(node.root["b"], signature_of.STATEMENT).exists()
    assert node.release.go_back(node.root, ALONE, False)["release_id"] == "a"


def test_an_unsigned_release_is_refused_before_anything_is_copied(node: Node) -> None:
    node.install(node.params("a"))
    problem = node.refused({**node.params("b"), "statement": {}, "signature": ""}, "is not signed")
    assert problem.fix == ["name-signing-key"]
    assert not os.path.exists(node.root["b"])


def test_a_signature_of_somebody_else_or_for_another_purpose_is_refused(node: Node) -> None:
    node.refused(node.params("a", by="eve"), "only releases of the signers in")
    node.refused({**node.params("a"), "signature": "nonsense"}, "ssh-keygen says")
    node.allow("ann", options='namespaces="git"')
    node.refused(node.params("a"), "ssh-keygen says")
    node.allow("ann", options='valid-before="20200101"')
    node.refused(node.params("a"), "ssh-keygen says")


@pytest.mark.parametrize(
    "forged",
    [
        {"wheels": {"w.whl": "0" * 64}},
        {"wheels": {}},
        {"counter": 10**10},
        {"root": "/opt/other"},
        {"plan": "another"},
    ],
)
def test_a_changed_statement_is_refused(node: Node, forged: dict[str, Any]) -> None:
    params = node.params("a")
    node.refused({**params, "statement": {**params["statement"], **forged}}, "ssh-keygen says")


def test_a_statement_about_something_else_is_refused(node: Node) -> None:
    good = node.params("a")
    node.refused({**node.params("b"), "release_id": "a"}, "is for release b, and not for a")
    node.refused(node.params("a", root="/opt/other"), "for the releases in /opt/other")
    node.refused(node.params("a", manifest="a"), "and not in")
    for other in (
        {"wheels": [{"file": "w.whl", "sha256": "0" * 64}]},
        {"wheels": []},
        {"manifest": {**good["manifest"], "group": "other"}},
    ):
        with pytest.raises(node.release.Problem, match="is for other wheels or another manifest"):
            node.release.make(node.root, {**good, **other}, False)
    assert not os.path.exists(node.root["a"])


def test_an_older_signature_is_refused(node: Node) -> None:
    old = node.params("a")
    node.install(old)
    node.install(node.params("b"))
    problem = node.refused(old, r"too old: its counter is 1010, and this node has seen 1020")
    assert problem.fix == ["sign-again-or-roll-back"]
    assert node.root.serving() == "b"
    node.install(node.params("a"))  # signed again
    assert node.root.serving() == "a"


def test_a_counter_file_that_holds_no_number_is_refused(node: Node) -> None:
    node.install(node.params("a"))
    Path(node.root.path, ".signed").write_text("many\n")
    node.refused(node.params("b"), "holds no number")


def test_a_rollback_needs_no_new_signature(node: Node) -> None:
    node.install(node.params("a"))
    latest = node.params("b")
    node.install(latest)
    assert node.release.go_back(node.root, ALONE, False)["release_id"] == "a"
    node.refused(latest, "too old")  # nobody returns to b by its old signature
    node.install(node.params("b"))
    assert node.root.serving() == "b"


def test_a_rollback_passes_over_releases_that_are_not_signed_now(node: Node) -> None:
    node.signers.unlink()
    node.install(node.params("a"))
    node.allow("ann", "bob")
    node.install(node.params("b", by="bob"))
    node.install(node.params("c"))
    assert node.release.go_back(node.root, ALONE, True)["release_id"] == "b"
    node.allow("ann")
    with pytest.raises(node.release.Problem, match="signed by a signer in"):
        node.release.go_back(node.root, ALONE, False)
    assert node.root.serving() == "c"


def test_a_release_that_was_made_without_a_signature_is_made_again(node: Node) -> None:
    node.signers.unlink()
    node.install(node.params("a"))
    node.allow("ann")
    params = node.params("a")
    assert not node.release.look(node.root, params)["complete"]
    signatures = signature_of.Signatures(node.root)
    with pytest.raises(node.release.Problem, match="was not made from signed"):
        signatures.check_switch(params["statement"], params["signature"], "a")
    node.install(params)
    assert node.root.serving() == "a"
    assert node.release.look(node.root, params)["complete"]


def test_a_release_with_another_statement_is_not_switched_to(node: Node) -> None:
    node.install(node.params("a"))
    params = node.params("b")
    node.release.make(node.root, params, False)
    for name in ("", ".sig"):
        path = Path(node.root["b"], signature_of.STATEMENT + name)
        path.write_text(Path(node.root["a"], signature_of.STATEMENT + name).read_text())
    assert not node.release.look(node.root, params)["complete"]
    with pytest.raises(node.release.Problem, match="was not made from signed wheels"):
        node.release.activate(node.root, params, False)


@pytest.mark.parametrize("place", ["etc", "etc/allowed_signers"])
def test_signers_that_others_can_write_are_refused(node: Node, place: str) -> None:
    params = node.params("a")
    (node.folder / place).chmod(0o777)
    node.refused(params, "can be written by other users than root")


def test_signers_of_another_owner_are_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature_of, "OWNER", 4242)
    node.refused(node.params("a"), "can be written by other users than root")


def test_a_broken_link_to_signers_does_not_turn_the_check_off(node: Node) -> None:
    params = node.params("a")
    node.signers.unlink()
    node.signers.symlink_to("missing")
    with pytest.raises((node.release.Problem, OSError)):
        node.release.begin(node.root, params, False)


def test_a_node_without_ssh_keygen_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    params = node.params("a")

    def missing(*_: Any, **__: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(signature_of.subprocess, "run", missing)
    problem = node.refused(params, "and ssh-keygen does not run there: No such file")
    assert problem.fix == ["install-ssh-keygen"]


def test_a_release_of_staging_cannot_be_used_in_production(node: Node) -> None:
    node.allow("ann", options='namespaces="release.production@fleetbuild.dev"')
    staging = node.params("a", fleet="staging")
    node.refused(staging, "ssh-keygen says")
    node.refused(node.params("a"), "ssh-keygen says")
    renamed = {**staging, "statement": {**staging["statement"], "fleet": "production"}}
    node.refused(renamed, "ssh-keygen says")
    for odd in ("x@fleetbuild.dev -n release", "..", "", None, {"a": 1}):
        forged = {**staging, "statement": {**staging["statement"], "fleet": odd}}
        node.refused(forged, "ssh-keygen says")
    node.install(node.params("a", fleet="production"))
    assert node.root.serving() == "a"
    node.allow("ann")  # a file that names no namespace allows every fleet
    node.install(node.params("b", fleet="staging"))
    assert node.root.serving() == "b"


def test_both_sides_sign_the_same_text() -> None:
    statement = {"b": {"z": "ä", "a": 1}, "a": [True, None, 1.5]}
    assert signature_of.text_of(statement) == sign_releases.text_of(statement)
    assert sign_releases.NAMESPACE == signature_of.NAMESPACE


def test_a_verification_names_a_release_without_a_valid_signature(node: Node) -> None:
    verify = plugin("modules.verify")
    node.allow("ann")
    node.install(node.params("a"))
    release = str(Path(node.root["a"]))
    said = verify.manifest_or_nothing(release)
    assert verify.damage_of(node.root.path, release, said) == ""
    node.allow("bob")  # and no longer ann
    assert "no signature of a signer" in verify.damage_of(node.root.path, release, said)
    node.signers.unlink()
    assert verify.damage_of(node.root.path, release, said) == ""
