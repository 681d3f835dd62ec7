"""Check what of a stack runs on each kind of machine, what dies, and what to take instead.

In: requirements or a lock, and kinds of machines. Out: a `CheckReport`. Nothing is built, and no
node is changed. Read `run.py` first.
"""

from fleetbuild.plan.check.report import CheckReport, CheckRow
from fleetbuild.plan.check.run import check, judge_wheel

__all__ = ["CheckReport", "CheckRow", "check", "judge_wheel"]
