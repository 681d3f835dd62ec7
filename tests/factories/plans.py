"""Small plans for the tests of the manifests."""

from fleetbuild.models import (
    Installs,
    Plan,
    PlannedGroup,
    PlannedNode,
    PlannedWheel,
    Requires,
    Target,
    TargetLibc,
)

RELEASE_ID = "0123456789abcdef"


def make_target(**changes) -> Target:
    values = {
        "arch": "x86_64",
        "isa": "avx2",
        "features": ("avx", "avx2"),
        "python": "cp311",
        "libc": TargetLibc(family="glibc", floor="2.36"),
    }
    return Target(**{**values, **changes})


def make_wheel(package="hnswlib", wheel_version="0.8.0+cpu.avx2", target=None, **changes):
    values = {
        "package": package,
        "version": wheel_version.split("+")[0],
        "wheel_version": wheel_version,
        "recipe": "generic",
        "target": target or make_target(),
        "artifact_key": "0" * 32,
        "action": "build",
        "reason": "not in the store",
        "environment": {},
        "requires": Requires(compiler="gcc 12.2.0 (present)"),
        "import_names": (package.replace("-", "_"),),
    }
    return PlannedWheel(**{**values, **changes})


def make_group(nodes=("a", "b"), target=None, wheels=None, name=None, **changes) -> PlannedGroup:
    target = target or make_target()
    values = {
        "name": name or target.name,
        "nodes": tuple(nodes),
        "representative": next(iter(nodes)),
        "target": target,
        "wheels": wheels or (make_wheel(target=target),),
        "release_id": RELEASE_ID,
        "dependencies": (),
        "installs": Installs(install=tuple(nodes)),
    }
    return PlannedGroup(**{**values, **changes})


def make_plan(groups=None, names=None, **changes) -> Plan:
    groups = groups or (make_group(),)
    nodes = {
        node: PlannedNode(
            state="ok", group=group.name, kubernetes_node=(names or {}).get(node, node)
        )
        for group in groups
        for node in group.nodes
    }
    values = {
        "created": "2026-11-20T00:00:00Z",
        "inventory": "inventory.yml",
        "facts_source": "probe",
        "packages": ("hnswlib==0.8.0",),
        "fingerprint": {},
        "nodes": nodes,
        "groups": tuple(groups),
    }
    return Plan(**{**values, **changes})


def gpu_fleet() -> Plan:
    """A CPU group, a GPU group on Arm with musl, and a name that the cluster knows otherwise."""
    gpu = make_target(
        arch="aarch64",
        isa="armv8.2",
        features=("asimd",),
        sms=("8.0", "9.0"),
        python="cp312",
        libc=TargetLibc(family="musl", floor="1.2.4"),
    )
    return make_plan(
        (
            make_group(("gpu-1",), gpu, (make_wheel("torch", "2.13.0+cu130.sm80.sm90.armv8.2"),)),
            make_group(("cpu-1", "cpu-2")),
        ),
        names={"cpu-2": "cpu-2.cluster.local"},
    )
