"""The command line of fleetbuild, which also prints a line at the start of each task on a node.

python controller.py ARGUMENTS OF FLEETBUILD
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from fleetbuild.ansible import playbooks
from fleetbuild.cli import main

take = playbooks._EventCollector.take


def told(run: Any, event: Mapping[str, Any]) -> None:
    if event.get("event") == "runner_on_start":
        data = event.get("event_data") or {}
        about = {"task": data.get("task"), "host": data.get("host")}
        sys.stdout.write(json.dumps(about) + "\n")
        sys.stdout.flush()
    take(run, event)


playbooks._EventCollector.take = told  # type: ignore[method-assign]
main()
