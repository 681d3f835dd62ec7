"""The steps of the roles that a run reports.

In: the name of a task in an event of Ansible. Out: what the task's role declares about it in
meta/steps.yml, so that a task can get another name without a change here.
"""

from __future__ import annotations

from functools import cache

import yaml

from fleetbuild.files import ansible_dir
from fleetbuild.models import Stage
from fleetbuild.models._base import Frozen


class Step(Frozen):
    """A task that a run reports, as its role declares it."""

    task: str
    stage: Stage
    doing: str  # for sentences: "The connection was lost while copying wheels"
    ends: bool = False  # whether its success is reported as the end of the stage


def step_of(task: str) -> Step | None:
    """Return the step that a task is. Events of ansible-runner name a task without its role."""
    return _steps().get(task.rpartition(" : ")[2])


@cache
def _steps() -> dict[str, Step]:
    files = sorted((ansible_dir() / "roles").glob("*/meta/steps.yml"))
    declared = [each for file in files for each in yaml.safe_load(file.read_text("utf-8"))]
    steps = {step.task: step for step in map(Step.model_validate, declared)}
    if len(steps) < len(declared):
        raise ValueError("two roles declare steps with the same task name")
    return steps
