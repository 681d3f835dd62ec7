"""The Jinja2 environment of recipes and settings: sandboxed; an unknown name is an error."""

from __future__ import annotations

from functools import lru_cache

from jinja2 import StrictUndefined, Template
from jinja2.sandbox import SandboxedEnvironment
from packaging.specifiers import SpecifierSet

# Nothing here is HTML: values go into environments and names.
ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)


def _within(version: str, specifier: str) -> bool:
    """`{{ version is within(">=2.1,<2.14") }}`."""
    return SpecifierSet(specifier).contains(version, prereleases=True)


ENVIRONMENT.tests["within"] = _within


@lru_cache(maxsize=1000)
def compiled(text: str) -> Template:
    """The template in this text. A plan renders the same few for every node and target."""
    return ENVIRONMENT.from_string(text)
