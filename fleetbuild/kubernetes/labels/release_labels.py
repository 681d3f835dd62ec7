"""The labels of what serves on a node, by its manifest: also where no plan knows it any more."""

from __future__ import annotations

from fleetbuild.kubernetes.labels.node_labels import label_key, package_key
from fleetbuild.kubernetes.names import label_value
from fleetbuild.models import Manifest

DEFAULT = "default"


def served_labels(manifest: Manifest, domain: str) -> dict[str, str]:
    """What a node is called while this release serves there and is verified; the same keys and
    values as a plan's node_labels has for it."""
    release = manifest.release
    values = {
        label_key(domain, "group", release): manifest.group,
        label_key(domain, "release", release): manifest.id,
        **{package_key(domain, wheel.package, release): wheel.version for wheel in manifest.wheels},
    }
    return {key: label_value(value) for key, value in sorted(values.items())}


def is_release_label(key: str, domain: str) -> bool:
    """Does it hold only while a release is there? What is not is of the hardware, or another's."""
    prefix, _, name = key.partition("/")
    return prefix == domain and name.partition(".")[0] in ("group", "release", "package")


def is_label_of(key: str, release: str, domain: str) -> bool:
    """Is it a label of this release, and of no other that lives beside it?"""
    kind, _, rest = key.removeprefix(f"{domain}/").partition(".")
    if kind == "package":
        return key == package_key(domain, rest.partition(".")[0], release)
    return kind in ("group", "release") and key == label_key(domain, kind, release)
