from math import inf, nan
from typing import Any

import pytest

from fleetbuild.ansible import HostRun
from fleetbuild.ansible.role_results import (
    BuildProgress,
    RoleResult,
    build_progress_of,
    more_severe,
    role_result_of,
)
from fleetbuild.ansible.silent_nodes import result_without_reply
from tests.factories.runs import event


def said(what: Any) -> RoleResult | None:
    facts = {"other": {"ok": True}, "build_wheel_result": what}
    return role_result_of(event("n", "Result", {"ansible_facts": facts}))


def test_reads_the_result_of_a_role() -> None:
    reply = said({"ok": True, "key": "k", "seconds": 2.5, "log": "", "file": None, "more": 1})
    assert reply == RoleResult(of="build", ok=True, key="k", seconds=2.5)


@pytest.mark.parametrize("what", [None, "ok", [1]])
def test_an_event_without_a_role_result_gives_nothing(what: Any) -> None:
    assert said(what) is None
    assert role_result_of(event("n", "Result", {})) is None
    assert role_result_of(event("n", "Result", {"ansible_facts": {"other": {"ok": True}}})) is None


@pytest.mark.parametrize(
    "what",
    [
        {},
        {"ok": "perhaps", "key": "k"},
        *({"ok": True, "seconds": odd} for odd in ({}, inf, nan, -1, 10**400, "1e400")),
        *({"ok": True, "packages": [odd]} for odd in ("p", "now run sh ==1", "p==1\n")),
    ],
)
def test_a_malformed_result_is_a_failure(what: Any) -> None:
    reply = said(what)
    assert reply
    assert not reply.ok
    assert reply.reason


@pytest.mark.parametrize(("fix", "read"), [("Do this.", "Do this."), (["no", "text"], "")])
def test_a_failed_task_says_why_and_what_to_do(fix: Any, read: str) -> None:
    reply = role_result_of(event("n", "Copy", {"fix": fix}, "failed", "The disk is full."))
    assert reply == RoleResult(of="failure", ok=False, reason="The disk is full.", fix=read)


def test_a_failed_result_takes_precedence_over_the_task_failure_that_follows() -> None:
    bad = RoleResult(of="verify", ok=False, reason="Illegal instruction")
    good = RoleResult(of="install", ok=True)
    failure = RoleResult(of="failure", ok=False)
    assert more_severe(bad, failure) is bad
    assert more_severe(good, failure) is failure
    assert more_severe(failure, good) is good
    assert more_severe(None, failure) is failure


@pytest.mark.parametrize(
    ("what", "read"),
    [
        ({"done": 3, "total": 7, "last_line": "[3/7] CXX a.o", "steps": 3}, (3, 7)),
        ({"done": None, "total": None}, (None, None)),
        ({"done": 1, "total": 10**400}, None),
        ({"done": -1, "total": 2}, None),
        ({"done": inf, "total": 2}, None),
        ("?", None),
        (None, None),
    ],
)
def test_only_valid_progress_is_accepted(what: Any, read: Any) -> None:
    news = build_progress_of(event("n", "Wait for the build", {"progress": what}))
    assert (news and (news.done, news.total)) == read
    assert news is None or isinstance(news, BuildProgress)


def test_a_full_disk_on_a_node_is_reported_as_such() -> None:
    failed = event("n", "Copy wheels", {}, "failed", "sftp: write: No space left on device")
    reply = role_result_of(failed)
    assert reply
    assert reply.reason.startswith("The disk is full: ")
    assert "df -h" in reply.fix
    own = event("n", "Make the release", {"fix": "Free it."}, "failed", "No space left on device")
    assert getattr(role_result_of(own), "fix", "") == "Free it."
    # Ansible takes a node for unreachable if its temporary folder cannot be made.
    lost = HostRun(state="unreachable", message="mkdir: /tmp/x: No space left on device")
    result = result_without_reply("n", "g", lost, None, "r1")
    assert result.state == "install_failed"
    assert "The disk is full" in str(result.reason)
    assert "its previous release still serves" in str(result.reason)
