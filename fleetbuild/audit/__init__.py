"""Audit wheels: which CPU features, SMs and libc a wheel needs, and whether it fits a target.

In: a wheel and a target. Out: problems as sentences. Wheels come from untrusted machines, so any
content gives a sentence and never a traceback.
"""

from fleetbuild.audit.check import check_wheel
from fleetbuild.audit.downloads import needed_libraries
from fleetbuild.audit.models import ElfAudit, FeatureUse, WheelAudit
from fleetbuild.audit.wheel import audit_wheel

__all__ = [
    "ElfAudit",
    "FeatureUse",
    "WheelAudit",
    "audit_wheel",
    "check_wheel",
    "needed_libraries",
]
