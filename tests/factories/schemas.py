"""Kubernetes' own schemas, the oldest and newest that are known, and some of custom resources."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema
import kubernetes_validate
import yaml
from kubernetes_validate import utils

from tests.factories.data import DATA

OLDEST = utils.all_versions()[0]
NEWEST = kubernetes_validate.latest_version()

# It would read and parse megabytes of definitions for every document.
utils.schema_contents = cache(utils.schema_contents)


def accept(document: dict[str, Any], version: str) -> None:
    """Fail where the API server of this version would refuse the document."""
    kubernetes_validate.validate(document, version, strict=True)


def strict(schema: Any) -> Any:
    """A structural schema drops what it does not know; here that is a mistake."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(each) for key, each in schema.items()}
    if "properties" in made and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def accept_custom(document: dict[str, Any]) -> None:
    """Fail where the custom resource has a field that its project's definition does not have."""
    known = yaml.safe_load((DATA / "scheduling" / "schemas.yml").read_text())[document["kind"]]
    assert document["apiVersion"] == known["apiVersion"]
    assert document.keys() == {"apiVersion", "kind", "metadata", "spec"}
    jsonschema.validate(document["spec"], known["spec"])
