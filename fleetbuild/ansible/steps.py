"""The steps of the roles that a run reports.

In: the name of a task in an event of Ansible. Out: what the task's role declares about it in
meta/steps.yml, so that a task can get another name without a change here.
"""

from __future__ import annotations

from functools import cache

import yaml

from fleetbuild.ansible.playbooks import ansible_dir
from fleetbuild.models import Stage
from fleetbuild.models._base import Frozen


class Step(Frozen):
    """A task that a run reports, as its role declares it."""

    task: str
    stage: Stage
    doing: str  # for sentences: "The connection was lost while copying wheels"
    ends: bool = False  # whether its success is reported as the end of the stage


def step_of(task: str) -> Step | None:
    """The step that a task is, given its name in an event: `fleetbuild.core.ROLE : NAME`."""
    role, _, name = task.rpartition(" : ")
    return _steps(role.rpartition(".")[2]).get(name)


@cache
def _steps(role: str) -> dict[str, Step]:
    file = ansible_dir() / "roles" / role / "meta" / "steps.yml"
    if not role or not file.is_file():
        return {}
    declared = (Step.model_validate(each) for each in yaml.safe_load(file.read_text("utf-8")))
    return {step.task: step for step in declared}
