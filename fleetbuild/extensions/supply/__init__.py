"""Supply chain: recall wheels, say where they come from, sign releases, publish indexes.

In: the store and its wheels. Out: revocations that every plan honours, a bill of materials in each
built wheel, a statement of provenance beside it, signatures of releases, indexes for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fleetbuild.extension import Extension

if TYPE_CHECKING:
    from fleetbuild.models import Config, PlannedWheel
    from fleetbuild.models._base import Frozen
    from fleetbuild.models.revocation import Revocations
    from fleetbuild.models.stored import BuildContext, Signer, WheelRecord


class Supply(Extension):
    """See the module."""

    def sections(self) -> Mapping[str, type[Frozen]]:
        from fleetbuild.extensions.supply.signing import Signing

        return {"signing": Signing}

    def commands(self) -> Sequence[Callable[..., None]]:
        from fleetbuild.extensions.supply import commands

        return (
            commands.provenance,
            commands.revoke,
            commands.store_export,
            commands.store_push,
        )

    def revocations(self, store: Path, seen: Iterable[tuple[str, str]] = ()) -> Revocations:
        from fleetbuild.extensions.supply.revocations_file import read_revocations

        return read_revocations(store, seen)

    def prepare(self, wheel: Path, folder: Path, planned: PlannedWheel) -> Path:
        from fleetbuild.extensions.supply.sbom import add_sbom

        add_sbom(wheel, folder / wheel.name, planned)
        return folder / wheel.name

    def accompany(
        self, home: Path, planned: PlannedWheel, record: WheelRecord, context: BuildContext
    ) -> None:
        from fleetbuild.extensions.supply.statement import write_statement

        write_statement(home, planned, record, context)

    def signer(self, config: Config, folder: Path) -> Signer | None:
        from fleetbuild.extensions.supply.signing import release_signer

        return release_signer(config, folder)


extension = Supply()
