"""Builds in a container: what the image of build.container holds on the nodes that may build.

In: nodes, an image. Out: facts in which the image's software takes the place of the node's; the
planner chooses builders by them, and the roles build in that image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleetbuild.extension import Extension, PlanBasis

if TYPE_CHECKING:
    from fleetbuild.models import Facts


class Containers(Extension):
    """See the module."""

    def facts_in_image(
        self, basis: PlanBasis, *, timeout: float | None, forks: int
    ) -> Mapping[str, Facts]:
        from functools import partial

        from fleetbuild.extensions.containers.image import look_into_image, with_containers

        look = partial(look_into_image, timeout=timeout, forks=forks) if timeout else None
        return with_containers(basis, look)


extension = Containers()
