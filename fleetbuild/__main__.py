"""Start the program `fleetbuild`. `python -m fleetbuild` does the same."""

import sys


def main() -> None:
    """Load the program and run it."""
    try:
        from fleetbuild.cli import main as run  # noqa: PLC0415 (Ctrl-C ends the loading as well)
    except KeyboardInterrupt:  # nothing has begun
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
