"""Start a command in the namespaces in which nodes build. Runs by itself, without fleetbuild.

In: a JSON document as argument: the command, its environment, what it sees. Out: the command's
output and exit code.
"""

import json
import os
import resource
import sys

GIB = 1 << 30
LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_DATA: 8 * GIB,
    resource.RLIMIT_FSIZE: GIB,
    resource.RLIMIT_NPROC: 1024,
}


def main(text: str) -> int:
    """Run the command as a user other than root; return its exit code."""
    asked = json.loads(text)
    sys.path.insert(0, asked["modules"])
    from builder import isolation  # type: ignore[import-not-found]  # noqa: PLC0415

    isolation.die_with(os.getppid())
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write("1000")  # the first to be ended where memory is short

    def work(_told: int) -> int:
        for limit, most in LIMITS.items():
            allowed = resource.getrlimit(limit)[1]
            value = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
            resource.setrlimit(limit, (value, value))
        try:
            os.execve(asked["command"][0], asked["command"], asked["environment"])  # noqa: S606
        except OSError as problem:
            sys.stderr.write(f"{asked['command'][0]}: {problem.strerror}\n")
        return 127

    view = isolation.View(asked["readable"], {}, memory=asked["memory"], system=asked["system"])
    user = isolation.NOBODY if os.geteuid() == 0 else None
    try:
        pid, _ = isolation.start(work, isolation.NAMESPACES, view, user, 1, 2)
    except isolation.CannotIsolate as problem:
        sys.exit(str(problem))
    return int(isolation.ending(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
