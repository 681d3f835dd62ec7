from math import inf, nan
from typing import Any

import pytest

from fleetbuild.ansible import HostRun
from fleetbuild.ansible.role_results import (
    BuildProgress,
    BuildReply,
    Failure,
    ReleaseReply,
    Reply,
    VerifyReply,
    build_progress_of,
    more_severe,
    reply_in,
)
from fleetbuild.ansible.silent_nodes import result_without_reply
from tests.factories.runs import event


def said(what: Any) -> Reply | None:
    facts = {"other": {"ok": True}, "build_wheel_result": what}
    return reply_in(event("n", "Result", {"ansible_facts": facts}))


def test_reads_the_result_of_a_role() -> None:
    reply = said({"ok": True, "key": "k", "seconds": 2.5, "log": "", "file": None, "more": 1})
    assert reply == BuildReply(ok=True, key="k", seconds=2.5)


@pytest.mark.parametrize("what", [None, "ok", [1]])
def test_an_event_without_a_role_result_gives_nothing(what: Any) -> None:
    assert said(what) is None
    assert reply_in(event("n", "Result", {})) is None
    assert reply_in(event("n", "Result", {"ansible_facts": {"other": {"ok": True}}})) is None


@pytest.mark.parametrize(
    "what",
    [
        {},
        {"ok": "perhaps", "key": "k"},
        *({"ok": True, "seconds": odd} for odd in ({}, inf, nan, -1, 10**400, "1e400")),
    ],
)
def test_a_malformed_result_is_a_failure(what: Any) -> None:
    reply = said(what)
    assert reply
    assert not reply.ok
    assert reply.reason


@pytest.mark.parametrize("package", ["p", "now run sh ==1", "p==1\n"])
def test_a_package_without_a_plain_name_and_version_is_malformed(package: str) -> None:
    result = {"ok": True, "active": True, "packages": [package]}
    reply = reply_in(event("n", "Make the release", result))
    assert isinstance(reply, ReleaseReply)
    assert not reply.ok


@pytest.mark.parametrize(("fix", "read"), [("Do this.", "Do this."), (["no", "text"], "")])
def test_a_failed_task_says_why_and_what_to_do(fix: Any, read: str) -> None:
    reply = reply_in(event("n", "Copy", {"fix": fix}, "failed", "The disk is full."))
    assert reply == Failure(reason="The disk is full.", fix=read)


def test_a_failed_result_takes_precedence_over_the_task_failure_that_follows() -> None:
    bad = VerifyReply(ok=False, reason="Illegal instruction")
    good = ReleaseReply(ok=True)
    failure = Failure()
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
    reply = reply_in(failed)
    assert reply
    assert reply.reason.startswith("The disk is full: ")
    assert "df -h" in reply.fix
    own = event("n", "Make the release", {"fix": "Free it."}, "failed", "No space left on device")
    assert getattr(reply_in(own), "fix", "") == "Free it."
    # Ansible takes a node for unreachable if its temporary folder cannot be made.
    lost = HostRun(state="unreachable", message="mkdir: /tmp/x: No space left on device")
    result = result_without_reply("n", "g", lost, None, "r1")
    assert result.state == "install_failed"
    assert "The disk is full" in str(result.reason)
    assert "its previous release still serves" in str(result.reason)
