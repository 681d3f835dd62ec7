"""Play seeds.

python -m tests.simulation FIRST [COUNT] [--larger | --nodes N] [--story] [--broken NAME]
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import sys
import time


def main() -> int:
    """Play the seeds in order; stop at the first that fails, and say how to repeat it."""
    gc.disable()  # until all is imported; see prepare()
    # Not before this process has its hash seed: it would import all of this twice.
    from tests.simulation.broken import BROKEN  # noqa: PLC0415
    from tests.simulation.schedules import Schedule, prepare  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--larger", action="store_true", help="fleets of up to six nodes, not four")
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--story", action="store_true", help="print what happened, too")
    parser.add_argument("--broken", choices=BROKEN, help="with the engine broken in this way")
    options = parser.parse_args()
    began, folder = time.process_time(), prepare()
    if options.broken:
        BROKEN[options.broken]()
    try:
        for seed in range(options.first, options.first + options.count):
            schedule = Schedule(seed, options.nodes, larger=options.larger)
            try:
                schedule.play()
            except BaseException:
                print("\n".join(schedule.world.trace))
                more = " --larger" if options.larger else ""
                more += f" --nodes {options.nodes}" if options.nodes else ""
                more += f" --broken {options.broken}" if options.broken else ""
                print(f"Seed {seed} fails. Again: python -m tests.simulation {seed}{more}")
                raise
            if options.story:
                print("\n".join(schedule.world.trace))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{options.count} schedules, {time.process_time() - began:.1f} s of CPU")
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order in sets belongs to a seed, too
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    sys.exit(main())
