"""What `revoke` and `provenance` show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetbuild.extensions.supply.provenance import ProvenanceReport
from fleetbuild.extensions.supply.revoke import Revoked
from fleetbuild.models.revocation import Revocation
from fleetbuild.text import clean, count, fold

if TYPE_CHECKING:
    from rich.table import Table

_DIGITS = 16  # of a sha256 in a table


def revocations_document(entries: Sequence[Revoked]) -> dict[str, Any]:
    """Return the document of `revoke --json` and `revoke --list --json`."""
    revoked = [
        {**entry.revocation.model_dump(mode="json"), "wheels": entry.wheels, "nodes": entry.nodes}
        for entry in entries
    ]
    return {"revoked": revoked}


def undone_document(entry: Revocation) -> dict[str, Any]:
    """Return the document of `revoke --undo --json`."""
    return {"taken_back": entry.model_dump(mode="json")}


def revocations_table(entries: Sequence[Revoked]) -> Table:
    """Return a table with a row per revocation."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("revoked", "since", "in the store", "serves on", "reason"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        revocation = entry.revocation
        what = revocation.what if "==" in revocation.what else revocation.what[:_DIGITS]
        nodes = clean(fold(entry.nodes)) if entry.nodes else "-"
        table.add_row(
            what,
            revocation.time[:10],
            "\n".join(entry.wheels) or "-",
            nodes,
            clean(revocation.reason),
        )
    return table


def revoked_lines(revoked: Revoked) -> list[str]:
    """Return the lines after a revocation: the wheel, its places, and the next command."""
    lines = [f"Revoked {revoked.revocation.what}: {revoked.revocation.reason}"]
    if revoked.wheels:
        lines.append(f"In the store, and not used any more: {', '.join(revoked.wheels)}")
    if revoked.nodes:
        named = clean(fold(revoked.nodes))
        lines += [
            f"Serves on {count(len(revoked.nodes), 'node')}, by their last answer: {named}",
            "Next: fleetbuild plan INVENTORY, then fleetbuild apply, which replaces it there.",
        ]
    else:
        lines.append("No node serves it, by their last answers.")
    lines.append("A run that has already begun is not stopped.")
    return lines


_MARKS = {"ok": "ok", "failed": "FAILED", "unknown": "-"}


def provenance_document(found: ProvenanceReport) -> dict[str, Any]:
    """Return the document of `provenance --json`: the statement, and each check."""
    return {"ok": not found.failed, **found.model_dump(mode="json")}


def provenance_lines(found: ProvenanceReport, *, every_file: bool = False) -> list[str]:
    """Return where the wheel comes from, and the checks."""
    predicate = found.statement["predicate"]
    definition, details = predicate["buildDefinition"], _dict(predicate.get("runDetails"))
    parameters = definition["externalParameters"]
    inner, run = _dict(definition.get("internalParameters")), _dict(details.get("metadata"))
    files = [_dict(resource) for resource in _list(definition.get("resolvedDependencies"))]
    sources = [file for file in files if _role(file) != "build requirement"]
    required = [file for file in files if _role(file) == "build requirement"]
    builder = _dict(details.get("builder"))
    lines = [
        f"{found.wheel}",
        f"  is            {parameters.get('package')} {parameters.get('wheelVersion')}",
        *(f"  {_role(source):<13} {source.get('uri')}" for source in sources),
        f"  recipe        {parameters.get('recipe')}",
        f"  for           {_target(parameters.get('target'))}",
        *(
            f"  {name:<13} {value}"
            for name, value in sorted(_dict(parameters.get("environment")).items())
        ),
        f"  compiler      {parameters.get('compiler')}, as planned",
        f"  built with    {count(len(required), 'requirement')}, each by hash",
        f"  builder       {builder.get('id')}{_when(run)}",
    ]
    if every_file:
        lines += [
            f"  requirement   {resource.get('name')} {resource.get('digest')}"
            for resource in required
        ]
        lines += [
            f"  tool          {tool.get('name')} {_dict(tool.get('annotations')).get('version')}"
            for tool in map(_dict, _list(builder.get("builderDependencies")))
        ]
    lines.append(f"  plan          {inner.get('planDigest') or 'unknown'}")
    lines += [
        f"  {check.name:<13} {_MARKS[check.state]}: {check.message}" for check in found.checks
    ]
    return [clean(line) for line in lines]


def _role(resource: dict[str, Any]) -> str:
    return str(_dict(resource.get("annotations")).get("role"))


def _target(target: object) -> str:
    fields = _dict(target)
    sms = " ".join(f"SM {sm}" for sm in _list(fields.get("sms")))
    libc = _dict(fields.get("libc"))
    words = (fields.get("arch"), fields.get("isa"), sms, fields.get("python"))
    return (
        f"{' '.join(str(word) for word in words if word)}, {libc.get('family')} {libc.get('floor')}"
    )


def _when(run: Mapping[str, Any]) -> str:
    """Return when a wheel was built, if its statement says so."""
    times = run.get("startedOn"), run.get("finishedOn")
    return f", {times[0]} to {times[1]}" if all(times) else ""


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
