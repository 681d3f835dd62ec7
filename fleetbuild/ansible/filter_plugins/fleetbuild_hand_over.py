"""A filter that passes a value to the controller without logging. Runs inside ansible-playbook."""

from __future__ import annotations

import json
import os
from typing import Any


def hand_over(text: str, host: str, kind: str) -> str:
    """Append a line to the file that the controller left open; the task's own result is empty."""
    line = json.dumps([host, kind, text]) + "\n"
    os.write(int(os.environ["FLEETBUILD_HAND_OVER"]), line.encode())
    return ""


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """The filters of this file by name."""
        return {"fleetbuild_hand_over": hand_over}
