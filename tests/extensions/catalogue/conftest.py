"""The fixtures of the command line."""

from tests.unit.cli.conftest import here, read_once, run  # noqa: F401 (fixtures)
from tests.unit.cli.show.conftest import rendered  # noqa: F401
