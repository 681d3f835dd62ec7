"""Which CPU features, SMs and libc a wheel needs, and whether it may go to a target's nodes.

Wheels come from machines that are not trusted: whatever is in them, the answer is a sentence and
never a traceback.
"""

from fleetbuild.audit.check import check_wheel
from fleetbuild.audit.models import ElfAudit, FeatureUse, WheelAudit
from fleetbuild.audit.wheel import audit_wheel, file_names, needed_libraries

__all__ = [
    "ElfAudit",
    "FeatureUse",
    "WheelAudit",
    "audit_wheel",
    "check_wheel",
    "file_names",
    "needed_libraries",
]
