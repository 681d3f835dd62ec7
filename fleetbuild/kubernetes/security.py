"""What our pods and their containers may do: no more than the restricted standard lets them."""

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
