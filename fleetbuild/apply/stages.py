"""Apply: do what a plan says, or say why not."""

from __future__ import annotations

from functools import reduce

from fleetbuild.apply.build_order import build_and_audit
from fleetbuild.apply.check import check
from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.fetch import fetch
from fleetbuild.apply.rollout import rollout
from fleetbuild.apply.write_manifests import emit
from fleetbuild.errors import FleetbuildError, Interrupted
from fleetbuild.models import Result
from fleetbuild.state.run_lock import hold_run_lock

# Each is given what the last one made of the run. One that finds nothing to do does nothing, so
# that a run which was interrupted anywhere is taken up by running it again.
STAGES = (check, fetch, build_and_audit, rollout, emit)


def carry_out(run: Run) -> Result:
    """Go through the stages under the lock; keep and return what came of it."""
    with hold_run_lock(run.state.create().lock_file):
        run.journal.note("run started", plan=run.plan.digest)
        try:
            progress = reduce(lambda so_far, stage: stage(run, so_far), STAGES, Progress())
        except FleetbuildError as error:
            run.journal.note("run ended", error=error.message)
            raise
        except KeyboardInterrupt:
            run.journal.note("run ended", error="interrupted")
            raise Interrupted(
                "Interrupted. Every node serves the release that it served, or the new one;"
                " builds that had begun go on, on their nodes.",
                "Run the same apply again; it takes up what is there.",
            ) from None
        result = progress.result(run)
        run.state.save_result(result, started=run.started)
        run.journal.note("run ended", exit_code=result.exit_code)
    run.tell("done", "ok" if result.exit_code == 0 else "failed", seconds=result.seconds)
    return result
