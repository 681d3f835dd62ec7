"""The labels of what serves on a node, by its manifest: also where no plan knows it any more."""

from __future__ import annotations

from fleetbuild.kubernetes.labels import label_key
from fleetbuild.kubernetes.names import label_value
from fleetbuild.models import Manifest

DEFAULT = "default"


def served_labels(manifest: Manifest, domain: str) -> dict[str, str]:
    """What a node is called while this release serves there and is verified; the same keys and
    values as a plan's node_labels has for it."""
    values = {
        "group": manifest.group,
        "release": manifest.id,
        **{f"package.{wheel.package}": wheel.version for wheel in manifest.wheels},
    }
    return {
        label_key(domain, name, manifest.release): label_value(value)
        for name, value in sorted(values.items())
    }


def is_release_label(key: str, domain: str) -> bool:
    """Does it hold only while a release is there? What is not is of the hardware, or another's."""
    prefix, _, name = key.partition("/")
    return prefix == domain and name.partition(".")[0] in ("group", "release", "package")


def is_label_of(key: str, release: str, domain: str) -> bool:
    """Is it a label of this release, and of no other that lives beside it?"""
    name = key.partition("/")[2]
    if release != DEFAULT:
        return is_release_label(key, domain) and name.endswith(f".{release}")
    # A package's name has no dots once it is normalised.
    return is_release_label(key, domain) and name.count(".") == name.startswith("package.")
