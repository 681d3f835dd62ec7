"""What an apply signs for its nodes, and when it does not begin."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.config import config_model
from fleetbuild.errors import BlockedError, ConfigError
from fleetbuild.extensions.supply.signing import ReleaseSigner, Signer, release_signer
from fleetbuild.models.stored import SignedRelease
from tests.factories.runs import FakeFleet, fleet_of, group, plan

AVX = group("avx", ["avx-1", "avx-2"])
PLAN = plan(AVX)


@pytest.fixture
def fleet(tmp_path: Path) -> FakeFleet:
    return fleet_of(tmp_path, AVX)


def test_each_node_of_a_group_gets_the_same_signed_statement(
    fleet: FakeFleet, tmp_path: Path
) -> None:
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    times = iter([1000.7, 2000.0])
    fleet.sign = ReleaseSigner(Signer(key), lambda: next(times))
    result = fleet.apply()
    assert {node.state for node in result.nodes} == {"installed"}
    installs = [each["fleetbuild_installs"] for each in fleet.extravars[1:]]
    specs = {name: spec for each in installs for name, spec in each.items()}
    assert sorted(specs) == ["avx-1", "avx-2"]
    first, second = specs["avx-1"], specs["avx-2"]
    assert first["statement"] == second["statement"]
    assert first["signature"] == second["signature"]
    statement = first["statement"]
    assert statement["counter"] == 1000  # signed once in this run
    assert (statement["plan"], statement["root"]) == (PLAN.digest, PLAN.install_path)
    assert statement["wheels"] == {wheel["file"]: wheel["sha256"] for wheel in first["wheels"]}
    assert statement["manifest"]["group"] == AVX.name
    known = {**first["manifest"]}
    for name in ("python", "verified", "files_sha256"):
        known.pop(name, None)
    assert statement["manifest"] == known
    assert "SSH SIGNATURE" in first["signature"]


def test_an_apply_without_a_key_does_not_begin(fleet: FakeFleet) -> None:
    fleet.facts["avx-2"] = fleet.facts["avx-2"].model_copy(update={"requires_signature": True})
    with pytest.raises(
        BlockedError, match=r"accepted by avx-2 .*signing\.key is not set"
    ) as caught:
        fleet.apply()
    assert caught.value.fix
    assert fleet.calls == []


def test_a_key_that_stops_signing_fails_the_group_and_changes_nothing(fleet: FakeFleet) -> None:
    def sign(_: Mapping[str, Any]) -> SignedRelease:
        raise ConfigError("Nothing can be signed with signing.key id.", "Load it.")

    fleet.sign = sign
    result = fleet.apply()
    assert {node.state for node in result.nodes} == {"install_failed"}
    assert {node.fix for node in result.nodes} == {"Load it."}
    assert [name for name, _ in fleet.calls] == ["build.yml"]


def test_a_release_without_a_key_has_no_statement(fleet: FakeFleet) -> None:
    fleet.apply()
    assert "statement" not in str(fleet.extravars)


def test_a_key_that_cannot_sign_is_an_error_before_any_build(tmp_path: Path) -> None:
    locked_key = tmp_path / "id"
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "passphrase", "-f", str(locked_key)]
    subprocess.run(command, check=True)
    for file in ("missing", "id"):
        config = config_model().model_validate({"signing": {"key": file}})
        with pytest.raises(ConfigError, match=r"signing\.key") as caught:
            release_signer(config, tmp_path)
        assert "ssh-add" in caught.value.fix
    assert release_signer(config_model()(), tmp_path) is None
