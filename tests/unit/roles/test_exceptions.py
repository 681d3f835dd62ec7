"""An exception that no module expects becomes its answer, with its causes."""

from __future__ import annotations

from types import SimpleNamespace

from tests.factories.role_modules import plugin

exceptions = plugin("module_utils.exceptions")


def test_an_exception_becomes_the_answer_with_its_causes() -> None:
    answers: list[str] = []
    module = SimpleNamespace(fail_json=lambda *, msg: answers.append(msg))
    with exceptions.reported(module):
        try:
            {}["x"]
        except KeyError as error:
            raise OSError("full") from error
    with exceptions.reported(module):
        raise ValueError
    with exceptions.reported(module):
        pass
    assert answers == ["full: 'x'", "ValueError"]
