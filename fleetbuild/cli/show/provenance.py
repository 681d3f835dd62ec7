"""The report of `fleetbuild provenance`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetbuild.cli.show.text import clean
from fleetbuild.store.provenance.check import ProvenanceReport
from fleetbuild.text import count

_MARKS = {"ok": "ok", "failed": "FAILED", "unknown": "-"}


def provenance_document(found: ProvenanceReport) -> dict[str, Any]:
    """Return the document of `provenance --json`: the statement, and each check."""
    return {"format_version": "1.0", "ok": not found.failed, **found.model_dump(mode="json")}


def provenance_lines(found: ProvenanceReport, *, every_file: bool = False) -> list[str]:
    """Return where the wheel comes from, and the checks."""
    predicate = found.statement["predicate"]
    definition, details = predicate["buildDefinition"], _dict(predicate.get("runDetails"))
    known = definition["externalParameters"]
    inner, run = _dict(definition.get("internalParameters")), _dict(details.get("metadata"))
    files = [_dict(each) for each in definition.get("resolvedDependencies") or ()]
    sources = [each for each in files if _role(each) != "build requirement"]
    required = [each for each in files if _role(each) == "build requirement"]
    builder = _dict(details.get("builder"))
    lines = [
        f"{found.wheel}",
        f"  is            {known.get('package')} {known.get('wheelVersion')}",
        *(f"  {_role(each):<13} {each.get('uri')}" for each in sources),
        f"  recipe        {known.get('recipe')}",
        f"  for           {_target(known.get('target'))}",
        *(
            f"  {name:<13} {value}"
            for name, value in sorted(_dict(known.get("environment")).items())
        ),
        f"  compiler      {_compiler(str(known.get('compiler')))}",
        f"  built with    {count(len(required), 'requirement')}, each by hash",
        f"  builder       {builder.get('id')}{_when(run)}",
    ]
    if every_file:
        lines += [f"  requirement   {each.get('name')} {each.get('digest')}" for each in required]
        lines += [
            f"  tool          {tool.get('name')} {_dict(tool.get('annotations')).get('version')}"
            for tool in builder.get("builderDependencies") or ()
        ]
    if inner.get("confirmedOn"):
        lines.append(f"  confirmed     {inner['confirmedOn']} built the same content")
    lines.append(f"  plan          {inner.get('planDigest') or 'unknown'}")
    lines += [f"  {each.name:<13} {_MARKS[each.state]}: {each.message}" for each in found.checks]
    return [clean(line) for line in lines]


def _role(resource: dict[str, Any]) -> str:
    return str(_dict(resource.get("annotations")).get("role"))


def _target(target: object) -> str:
    known = _dict(target)
    sms = " ".join(f"SM {sm}" for sm in known.get("sms") or ())
    libc = _dict(known.get("libc"))
    words = (known.get("arch"), known.get("isa"), sms, known.get("python"))
    return (
        f"{' '.join(str(word) for word in words if word)}, {libc.get('family')} {libc.get('floor')}"
    )


def _compiler(planned: str) -> str:
    """Return the compiler as a plan names it, in words for the time after the build."""
    return planned.replace(
        "(present)", "(it was installed on the builder before the build)"
    ).replace("(to be installed by", "(installed by")


def _when(run: Mapping[str, Any]) -> str:
    """Return when a wheel was built, if its statement says so."""
    times = run.get("startedOn"), run.get("finishedOn")
    return f", {times[0]} to {times[1]}" if all(times) else ""


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
