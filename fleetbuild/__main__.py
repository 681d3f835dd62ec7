"""Start the program `fleetbuild`. `python -m fleetbuild` does the same."""

import sys

from fleetbuild.errors import FleetbuildError


def main() -> None:
    """Load the program and run it."""
    try:
        from fleetbuild.cli import main as run  # noqa: PLC0415 (Ctrl-C ends the loading as well)
    except KeyboardInterrupt:  # nothing has begun
        sys.exit(130)
    except FleetbuildError as error:  # an extension is broken
        sys.stderr.write(f"error: {error.message}\nfix: {error.fix}\n")
        sys.exit(error.exit_code)
    run()


if __name__ == "__main__":
    main()
