"""Kubernetes' own schemas: the oldest and the newest that are known."""

from __future__ import annotations

from functools import cache
from typing import Any

import kubernetes_validate
from kubernetes_validate import utils

OLDEST = utils.all_versions()[0]
NEWEST = kubernetes_validate.latest_version()

# It would read and parse megabytes of definitions for every document.
utils.schema_contents = cache(utils.schema_contents)


def accept(document: dict[str, Any], version: str) -> None:
    """Fail where the API server of this version would refuse the document."""
    kubernetes_validate.validate(document, version, strict=True)
