"""The Jinja2 that values are written in: sandboxed, and a name that nobody knows is an error."""

from __future__ import annotations

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

# Nothing here is HTML: values go into environments and names.
ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
