"""The base of all models: frozen, and strict about unknown keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A model that cannot be changed and refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
