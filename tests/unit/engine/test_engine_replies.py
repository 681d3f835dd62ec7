from typing import Any

import pytest
from engine_fakes import event

from fleetbuild.engine.replies import Reply, reply_of


def said(what: Any, task: str = "build_wheel : fleetbuild result") -> Reply | None:
    return reply_of(event("n", task, {"ansible_facts": {"fleetbuild_result": what}}))


def test_reads_what_a_playbook_says() -> None:
    reply = said({"ok": True, "key": "k", "seconds": 2.5, "log": "", "file": None, "more": 1})
    assert reply == Reply(ok=True, key="k", seconds=2.5)


@pytest.mark.parametrize("what", [None, "ok", [1]])
def test_what_is_no_answer_is_none(what: Any) -> None:
    assert said(what) is None
    assert said({"ok": True}, task="something else") is None
    assert reply_of(event("n", "fleetbuild result", {})) is None


@pytest.mark.parametrize("what", [{}, {"ok": "perhaps", "key": "k"}, {"ok": True, "seconds": {}}])
def test_an_answer_without_sense_is_a_failure(what: Any) -> None:
    reply = said(what)
    assert reply
    assert not reply.ok
    assert reply.reason
