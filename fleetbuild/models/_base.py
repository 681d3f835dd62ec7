from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A noun: a value that never changes and knows all its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
