"""Security settings of our pods and containers: no more than the restricted standard allows."""

from __future__ import annotations

from typing import Any

NOBODY = 65534
POD: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": NOBODY,
    "runAsGroup": NOBODY,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
