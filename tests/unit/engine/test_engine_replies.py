from typing import Any

import pytest
from engine_fakes import event

from fleetbuild.engine.replies import Reply, reply_of, weightier


def said(what: Any) -> Reply | None:
    facts = {"other": {"ok": True}, "build_wheel_result": what}
    return reply_of(event("n", "Result", {"ansible_facts": facts}))


def test_reads_what_a_role_says() -> None:
    reply = said({"ok": True, "key": "k", "seconds": 2.5, "log": "", "file": None, "more": 1})
    assert reply == Reply(of="build", ok=True, key="k", seconds=2.5)


@pytest.mark.parametrize("what", [None, "ok", [1]])
def test_what_is_no_answer_is_none(what: Any) -> None:
    assert said(what) is None
    assert reply_of(event("n", "Result", {})) is None
    assert reply_of(event("n", "Result", {"ansible_facts": {"other": {"ok": True}}})) is None


@pytest.mark.parametrize("what", [{}, {"ok": "perhaps", "key": "k"}, {"ok": True, "seconds": {}}])
def test_an_answer_without_sense_is_a_failure(what: Any) -> None:
    reply = said(what)
    assert reply
    assert not reply.ok
    assert reply.reason


@pytest.mark.parametrize(("fix", "read"), [("Do this.", "Do this."), (["no", "text"], "")])
def test_a_failed_task_says_why_and_what_to_do(fix: Any, read: str) -> None:
    reply = reply_of(event("n", "Copy", {"fix": fix}, "failed", "The disk is full."))
    assert reply == Reply(of="failure", ok=False, reason="The disk is full.", fix=read)


def test_a_result_outweighs_the_failure_that_ends_it() -> None:
    bad = Reply(of="verify", ok=False, reason="Illegal instruction")
    good = Reply(of="install", ok=True)
    failure = Reply(of="failure", ok=False)
    assert weightier(bad, failure) is bad
    assert weightier(good, failure) is failure
    assert weightier(failure, good) is good
    assert weightier(None, failure) is failure
