"""Apply: do what a plan says, or say why not."""

from __future__ import annotations

from functools import reduce

from fleetbuild.engine.check import check
from fleetbuild.engine.emit import emit
from fleetbuild.engine.fetch import fetch
from fleetbuild.engine.levels import make_wheels
from fleetbuild.engine.lock import locked
from fleetbuild.engine.rollout import rollout
from fleetbuild.engine.run import Progress, Run
from fleetbuild.errors import FleetbuildError, Interrupted
from fleetbuild.models import Result

# Each is given what the last one made of the run. One that finds nothing to do does nothing, so
# that a run which was interrupted anywhere is taken up by running it again.
STAGES = (check, fetch, make_wheels, rollout, emit)


def carry_out(run: Run) -> Result:
    """Go through the stages under the lock; keep and return what came of it."""
    with locked(run.state.create().lock_file):
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
