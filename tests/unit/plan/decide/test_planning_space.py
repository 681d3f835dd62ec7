"""A plan warns of nodes whose disk is too small for the release."""

from __future__ import annotations

from typing import Any

from fleetbuild import Config
from fleetbuild.plan.document.warnings import plan_warnings
from tests.factories.fleets import facts, locked, manifest
from tests.factories.runs import group

SIZED = locked("numpy").model_copy(update={"size": 100_000_000})
GROUP = group("avx", ["small", "large", "unknown"], dependencies=(SIZED,))


def warnings(**small: Any) -> tuple[str, ...]:
    known = {
        "small": facts("avx", install_free_gb=0.2, **small),
        "large": facts("avx", install_free_gb=1.0),
        "unknown": facts("avx"),
    }
    return plan_warnings(
        [], [GROUP], known, [], Config.model_validate({"build": {"isolation": "off"}})
    )


def test_a_node_whose_disk_is_too_small_is_named_with_both_sizes() -> None:
    assert warnings() == (
        (
            "The disk of /opt/fleetbuild on small has 215 MB free, and the release needs 240 MB or"
            " more: apply fails there unless you free space."
        ),
    )


def test_a_node_without_sudo_and_the_right_to_write_is_named() -> None:
    lacking = {"needs_root": {"default": 1000}, "no_sudo": True}
    assert "small may not write to /opt/fleetbuild, and sudo" in str(warnings(**lacking))
    assert "sudo" not in str((warnings(needs_root={"default": 1}), warnings(no_sudo=True)))


def test_a_release_that_is_on_the_node_needs_no_space() -> None:
    assert warnings(previous={"default": str(GROUP.release_id)}) == ()


def test_the_files_of_the_current_release_are_not_copied() -> None:
    """They need 140 MB with the environment, and 240 MB as copies."""
    served = manifest("earlier").model_copy(update={"dependencies": (f"numpy=={SIZED.version}",)})
    assert warnings(release={"default": served}) == ()
