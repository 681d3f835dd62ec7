"""Libraries that wheels are linked with: an image is not the node on which they were tried."""

import json
from pathlib import Path

import pytest

import fleetbuild
from fleetbuild.ansible import Secrets
from fleetbuild.apply.wiring import FleetAccess, apply_tools
from fleetbuild.audit.downloads import needed_libraries
from fleetbuild.extension import Follower
from fleetbuild.extensions.kubernetes.manifests.images import library_warnings
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.render import render
from fleetbuild.models import Config, Inventory, LockedFile, ReleaseFile, TargetLibc
from fleetbuild.models.serving import as_planned
from fleetbuild.state import StateDir
from fleetbuild.store.release_files import release_files
from fleetbuild.store.wheels import Store
from tests.factories.elf import make_elf
from tests.factories.files import make_wheel as wheel_file
from tests.factories.plans import make_group, make_plan, make_target, make_wheel

GROUP, IMAGE = "cpu-avx2-cp311", "docker.io/library/python:3.11-bookworm"
CUDA11 = ("libcudart.so.11.0", "libcublas.so.11")


def wheels(*needs):
    return {
        GROUP: (
            ReleaseFile("torch", Path("torch-2.1.0-cp311-cp311-linux_x86_64.whl"), "0" * 64, needs),
        )
    }


def elf(*needed):
    return make_elf(b"\xc3", needed=("libc.so.6", *needed))


@pytest.fixture
def shelf(tmp_path):
    """A state with a plan's release in its store: a wheel of two modules, and one of PyPI's."""
    nvidia = wheel_file(
        tmp_path, files={"nvidia/cublas/lib/libcublas.so.12": elf()}, name="nvidia_cublas"
    )
    state = StateDir(tmp_path / "state").create()
    store = Store(state.store)
    path, sha256 = store.add_file(lambda made: made.write_bytes(nvidia.read_bytes()), nvidia.name)
    locked = LockedFile(name="nvidia-cublas", version="1", file=path.name, sha256=sha256, url="u")
    plan = make_plan([make_group(("a",), dependencies=(locked,))])
    linked = elf("libopenblas.so.0", "libown.so", "libcublas.so.12", "libcuda.so.1")
    built = wheel_file(tmp_path, files={"a/_a.so": linked, "a/libown.so": elf("libgomp.so.1")})
    store.add(built, plan.groups[0].wheels[0], built_on="a", seconds=1)
    return plan, store, state.root


def emit(state, plan, kind="k8s", **how):
    emitted = fleetbuild.Fleet(state_dir=state).emit(kind, plan=plan, **how)
    return emitted.files, emitted.warnings


def test_libraries_in_the_release_are_not_required_of_the_image(shelf):
    plan, store, _ = shelf
    ours, theirs = release_files(plan, store)[GROUP]
    assert ours.needs == ("libc.so.6", "libcuda.so.1", "libgomp.so.1", "libopenblas.so.0")
    assert theirs.needs == ()


@pytest.mark.parametrize("kind", ["k8s", "kustomize", "containers"])
def test_libraries_missing_in_an_official_image_are_reported_and_noted(shelf, kind):
    plan, _, state = shelf
    files, (sentence,) = emit(state, plan, kind, delivery=Delivery(image_prefix="r/x"))
    assert f"{GROUP}: its wheels are linked with libopenblas.so.0, which {IMAGE} lacks" in sentence
    assert sentence.endswith("with --image, or set libraries: bundle in the recipe.")
    noted = [text for text in files.values() if "#   libopenblas.so.0\n" in text]
    assert len(noted) == 1
    assert "libgomp" not in noted[0]


def test_an_apply_writes_what_emit_writes(shelf):
    plan, _, state = shelf
    access = FleetAccess(
        inventory=Inventory(source=str(state / "i.yml"), nodes=()), state=StateDir(state),
        secrets=Secrets(), timeout=1, forks=1, install_path="/opt/fleetbuild",
    )  # fmt: skip
    applied = apply_tools(access, Config(), Follower()).written(
        plan, plan.groups, as_planned(plan, {"a"})
    )
    emitted, _ = emit(state, plan)
    name = f"deployment-{GROUP}.yaml"
    assert "libopenblas" in applied[name]
    assert applied[name] == emitted[name]


def test_a_users_image_must_contain_the_libraries(shelf):
    plan, _, state = shelf
    files, told = emit(state, plan, delivery=Delivery(image="mine:1"))
    assert not told
    text = files[f"deployment-{GROUP}.yaml"]
    assert "mine:1 must contain:\n#   libgomp.so.1\n#   libopenblas.so.0\n" in text


def test_the_groups_own_image_needs_no_warning(shelf):
    plan, _, state = shelf
    files, told = emit(state, plan, delivery=Delivery(way="image", image_prefix="r/x"))
    assert not told
    assert not any("libopenblas" in text for text in files.values())


@pytest.mark.parametrize("needs", [(), ("libc.so.6", "libstdc++.so.6", "libgomp.so.1"),
                                   ("ld-linux-x86-64.so.2", "libpython3.11.so.1.0")])  # fmt: skip
def test_libraries_in_an_official_image_are_not_reported(needs):
    assert library_warnings(make_plan(), wheels(*needs)) == ()
    plain = render(make_plan())
    assert render(make_plan(), wheels=wheels(*needs)) == plain


def test_musl_images_contain_fewer_libraries():
    target = make_target(libc=TargetLibc(family="musl", floor="1.2.4"))
    plan = make_plan([make_group(target=target, wheels=(make_wheel(target=target),))])
    name = plan.groups[0].name
    linked = ("libstdc++.so.6", "libc.musl-x86_64.so.1", "libz.so.1")
    (told,) = library_warnings(plan, {name: wheels(*linked)[GROUP]})
    assert "linked with libstdc++.so.6, which docker.io/library/python:3.11-alpine" in told


def test_missing_libraries_are_sorted():
    (told,) = library_warnings(make_plan(), wheels(*CUDA11))
    assert "libcublas.so.11, libcudart.so.11.0, which" in told


def test_an_unreadable_wheel_needs_no_library(tmp_path):
    plan, store = make_plan(), Store(tmp_path)
    for content in (b"no zip", b""):
        damaged = tmp_path / "hnswlib-0.8.0-py3-none-any.whl"
        damaged.write_bytes(content)
        assert needed_libraries(damaged) == ()
    odd = wheel_file(tmp_path, files={"a.so": b"\x7fELF" + b"\xff" * 60, "b.so": b"\x7fELF"})
    assert store.add(odd, plan.groups[0].wheels[0], built_on="a", seconds=1).provenance.needs == ()


def test_the_modules_of_a_wheel_are_recorded_so_that_no_apply_reads_it_again(tmp_path, monkeypatch):
    target, store = make_target(), Store(tmp_path / "store")
    planned = make_wheel(target=target, import_names=())
    plan = make_plan([make_group(target=target, wheels=(planned,))])
    file = wheel_file(tmp_path, "hnswlib", "0.8.0", files={"hnswlib/__init__.py": b""})
    added = store.add(file, planned, built_on="a", seconds=1)
    with monkeypatch.context() as patch:
        patch.setattr("fleetbuild.store.release_files.import_names", lambda _: pytest.fail("read"))
        (held,) = release_files(plan, store)[plan.groups[0].name]
    assert held.imports == ("hnswlib",)
    record = added.path.parent / "provenance.json"  # as earlier versions wrote it
    earlier = json.loads(record.read_text())
    del earlier["imports"]
    record.write_text(json.dumps(earlier))
    assert release_files(plan, store)[plan.groups[0].name] == (held,)
