"""The Jinja2 environment of recipes and settings: sandboxed; an unknown name is an error."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateRuntimeError
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from packaging.specifiers import SpecifierSet

LONGEST = 1 << 16  # characters of a template, and of what it gives


class _Environment(SandboxedEnvironment):
    """A sandbox in which no product and no power is larger than any value of a recipe."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        small = numbers and abs(left) <= LONGEST and abs(right) <= LONGEST
        if not small or (operator == "**" and abs(right) > _HIGHEST_POWER):
            raise TemplateRuntimeError(f"{operator} is for numbers up to {LONGEST}")
        return super().call_binop(context, operator, left, right)


_HIGHEST_POWER = 64
# Nothing here is HTML: values go into environments and names.
ENVIRONMENT = _Environment(undefined=StrictUndefined, autoescape=False)


def _within(version: str, specifier: str) -> bool:
    """`{{ version is within(">=2.1,<2.14") }}`."""
    return SpecifierSet(specifier).contains(version, prereleases=True)


ENVIRONMENT.tests["within"] = _within


def rendered(text: str, values: Mapping[str, Any]) -> str:
    """Render a template; raise if it gives more text than any recipe needs."""
    found = ""
    for part in compiled(text).generate(values):
        found += part
        if len(found) > LONGEST:
            raise TemplateRuntimeError(f"it gives more than {LONGEST} characters")
    return found.strip()


@lru_cache(maxsize=1000)
def compiled(text: str) -> Template:
    """The template in this text. A plan renders the same few for every node and target."""
    return ENVIRONMENT.from_string(text)
