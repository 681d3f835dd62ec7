"""`python -m fleetbuild` is `fleetbuild`."""

from fleetbuild.cli import main

main()
