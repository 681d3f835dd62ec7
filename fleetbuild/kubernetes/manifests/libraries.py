"""System libraries that a group's wheels need and no wheel of the release contains.

The image of a pod must contain them: it is not the node on which the wheels were tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.kubernetes.manifests.images import default_image, lacking
from fleetbuild.models import Plan, PlannedGroup, ReleaseFile

_LACKING = """\
The wheels are linked with libraries that neither they nor {image} contain:
{libraries}
Add them to the image that runs, or bundle them (libraries: bundle in the recipe)."""
_WANTED = """\
The wheels are linked with libraries that they do not contain, so {image} must contain:
{libraries}"""


def library_note(group: PlannedGroup, wheels: Sequence[ReleaseFile], own: str | None) -> str:
    """Return a comment about missing libraries in `own`, else in the official image, or ""."""
    found = lacking(group.target, wheels, official=own is None)
    if not found:
        return ""
    text = _WANTED if own else _LACKING
    libraries = "\n".join(f"  {each}" for each in found)
    return "\n\n" + text.format(image=own or default_image(group.target), libraries=libraries)


def library_warnings(
    plan: Plan, wheels: Mapping[str, Sequence[ReleaseFile]], *, official: bool
) -> tuple[str, ...]:
    """Return a sentence for each group whose wheels need libraries that the image lacks."""
    return tuple(
        _sentence(group, found, official)
        for group in plan.groups
        if (found := lacking(group.target, wheels.get(group.name, ()), official=official))
    )


def _sentence(group: PlannedGroup, libraries: Sequence[str], official: bool) -> str:
    said = f"{group.name}: its wheels are linked with {', '.join(libraries)}, which"
    if not official:
        return f"{said} the workload's image must contain."
    return (
        f"{said} {default_image(group.target)} lacks; name an image that has them with --image, or"
        " set libraries: bundle in the recipe."
    )
