"""The plan as a document: assemble it, compare it with the fleet, write and read it.

In: a draft, locks, facts. Out: `plan.json`. Read `make_plan.py` first. All but `files.py` is pure.
"""

from fleetbuild.plan.document.fingerprint import changes_since_plan, fingerprint
from fleetbuild.plan.document.make_plan import make_plan
from fleetbuild.plan.document.serialize import dump_plan, read_plan

__all__ = ["changes_since_plan", "dump_plan", "fingerprint", "make_plan", "read_plan"]
