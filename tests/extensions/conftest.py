"""The fixtures of the core that tests of extensions use: the lab, and modules of roles."""

from tests.fleet.conftest import lab, make_lab  # noqa: F401 (fixtures)
from tests.unit.roles.conftest import release  # noqa: F401
