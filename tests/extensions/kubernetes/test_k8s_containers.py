"""What images are built from, and what the script asks of podman, docker and buildah."""

import shutil
import subprocess

import pytest

from fleetbuild.errors import UsageError
from fleetbuild.extensions.kubernetes.manifests.containerfile import (
    containers,
    index_warnings,
    indexes,
    least_demanding,
)
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.models import TargetLibc
from tests.extensions.kubernetes.delivery import PREFIX
from tests.factories.plans import (
    RELEASE_ID,
    make_group,
    make_plan,
    make_target,
    make_wheel,
    six_nodes,
    wheels_of,
)

IMAGES = Delivery(image_prefix=PREFIX)
ENGINE = """#!/bin/sh
echo "${0##*/}" "$@" >>"$LOG"
[ "$1 $2" != "$FAIL" ]
"""


def built(tmp_path, plan, *arguments, engines=("podman",), fail="", **environment):
    """The calls that the script makes to engines which only take note."""
    folder = tmp_path / "containers"
    files = containers(plan, IMAGES, wheels_of(plan))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    for name in engines:
        (programs / name).write_text(ENGINE)
        (programs / name).chmod(0o755)
    if not (programs / "dirname").exists():
        (programs / "dirname").symlink_to(shutil.which("dirname"))
    log = tmp_path / "log"
    log.write_text("")
    done = subprocess.run(
        [shutil.which("sh"), str(folder / "build.sh"), *arguments],
        env={"PATH": str(programs), "LOG": str(log), "FAIL": fail, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, log.read_text().splitlines()


def image(group, suffix=""):
    return f"{PREFIX}:{group}-{RELEASE_ID}{suffix}"


def test_each_group_has_the_inputs_of_its_image():
    plan = six_nodes()
    files = containers(plan, IMAGES, wheels_of(plan))
    names = [group.name for group in plan.groups]
    parts = ("Containerfile", "requirements.txt")
    assert list(files) == sorted(["build.sh", *(f"{n}/{part}" for n in names for part in parts)])
    text = files["cpu-avx2-cp311/Containerfile"]
    assert "ARG BASE=docker.io/library/python:3.11-bookworm\n" in text
    for option in ("--no-index", "--require-hashes", "--no-deps", "USER 65534:65534"):
        assert option in text
    assert text.count("\nFROM ") == 3
    # A cached layer's name covers copied files, and no mounted ones.
    assert text.index("COPY requirements.txt") < text.index("RUN ")
    assert files["cpu-avx2-cp311/requirements.txt"] == (
        f"hnswlib==0.8.0+cpu.avx2 --hash=sha256:{'ab' * 32}\n"
    )
    own = containers(plan, Delivery(image_prefix=PREFIX, image="our/python:3"), wheels_of(plan))
    assert "ARG BASE=our/python:3\n" in own["cpu-avx2-cp311/Containerfile"]
    assert containers(plan, IMAGES, wheels_of(plan)) == files


def test_the_script_pushes_only_on_request(tmp_path):
    done, calls = built(tmp_path, make_plan())
    assert done.returncode == 0, done.stderr
    assert calls == [
        f"podman build --platform linux/amd64 --target {target} --tag {tag} "
        "--file ./cpu-avx2-cp311/Containerfile ./cpu-avx2-cp311"
        for target, tag in (
            ("image", image("cpu-avx2-cp311")),
            ("volume", image("cpu-avx2-cp311", "-volume")),
        )
    ]


@pytest.mark.parametrize("engine", ["podman", "buildah", "docker"])
def test_groups_of_two_architectures_share_an_index(tmp_path, engine):
    done, calls = built(tmp_path, six_nodes(), "--push", engines=(engine,))
    assert done.returncode == 0, done.stderr
    assert [call.split()[1] for call in calls].count("push") == 6
    assert sum("linux/arm64" in call for call in calls) == 2
    name = next(call.split()[-1] for call in calls if f"{engine} manifest push" in call)
    arm, cpu = image("cpu-armv8.2-cp311"), image("cpu-avx2-cp311")
    made = [call for call in calls if " manifest " in call]
    if engine == "docker":
        assert made == [
            f"docker manifest create --amend {name} {arm} {cpu}",
            f"docker manifest push --purge {name}",
        ]
        return
    name = name.removeprefix("docker://")
    assert name.startswith(f"{PREFIX}:any-")
    assert made == [
        f"{engine} manifest rm {name}",
        f"{engine} manifest create {name}",
        f"{engine} manifest add {name} containers-storage:{arm}",
        f"{engine} manifest add {name} containers-storage:{cpu}",
        f"{engine} manifest push --all {name} docker://{name}",
    ]


def test_docker_makes_an_index_only_of_pushed_images(tmp_path):
    done, calls = built(tmp_path, six_nodes(), engines=("docker",))
    assert done.returncode == 0
    assert not any("manifest" in call for call in calls)


def test_the_engine_is_the_named_or_the_installed_one(tmp_path):
    engines = ("podman", "docker")
    assert built(tmp_path, make_plan(), engines=engines)[1][0].startswith("podman ")
    named = built(tmp_path, make_plan(), engines=engines, ENGINE="docker")
    assert named[1][0].startswith("docker ")
    (tmp_path / "none").mkdir()
    nothing, calls = built(tmp_path / "none", make_plan(), engines=())
    assert (nothing.returncode, calls) == (2, [])
    assert "is needed" in nothing.stderr
    assert built(tmp_path, make_plan(), "--pull")[0].returncode == 2


def test_a_build_that_fails_stops_the_script(tmp_path):
    done, calls = built(tmp_path, six_nodes(), "--push", fail="build --platform")
    assert done.returncode != 0
    assert len(calls) == 1


AVX, AVX2, AVX512 = ("avx",), ("avx", "avx2"), ("avx", "avx2", "avx512f")


def cpu(isa, features, arch="x86_64", **changes):
    return make_target(arch=arch, isa=isa, features=features, **changes)


def arm(isa="armv8.2", features=("asimd",), **changes):
    return cpu(isa, features, "aarch64", **changes)


def indexed(*targets):
    """Return the members of each index, by name, and its annotations."""
    groups = [make_group(("n",), target) for target in targets]
    return {
        tuple(group.name for group in each.members): " ".join(each.says.split())
        for each in indexes(groups, groups)
    }


def test_the_index_has_the_image_that_runs_on_all_nodes_of_an_architecture():
    def least(*targets):
        found = least_demanding([make_group(("n",), target) for target in targets])
        return found and found.name

    gpu, more = cpu("avx", AVX, sms=("8.6",)), cpu("avx", AVX, sms=("8.6", "9.0"))
    assert least(cpu("avx2", AVX2), cpu("avx", AVX)) == "cpu-avx-cp311"
    assert least(gpu, more) == "sm86.sm90-avx-cp311"
    assert least(gpu, cpu("avx", AVX, sms=("9.0",))) is None
    assert least(arm("armv8.4sve", ("asimd", "sve")), arm("armv9", ("asimd", "sve2"))) is None


def test_groups_with_gpus_do_not_prevent_an_index_of_the_others():
    made = indexed(
        cpu("avx2", AVX2), cpu("avx512", AVX512), cpu("avx", AVX, sms=("8.6",)), arm()
    )  # fmt: skip
    ((members, says),) = made.items()
    assert members == ("cpu-armv8.2-cp311", "cpu-avx2-cp311")
    assert says.endswith(
        "Do not run it on nodes of these groups, which lack required features: sm86-avx-cp311"
    )
    both = indexed(cpu("avx2", AVX2, sms=("8.6",)), arm(sms=("8.6",)), arm())
    ((members, says),) = both.items()
    assert members == ("sm86-armv8.2-cp311", "sm86-avx2-cp311")
    assert "cp311 with a GPU" in says
    assert "Keep it off" not in says


def test_each_python_has_an_index_of_its_own():
    old, new = {"python": "cp310"}, {"python": "cp312"}
    assert indexed(cpu("avx2", AVX2, **old), arm(**new)) == {}
    both = indexed(
        cpu("avx2", AVX2, **old), arm(**old), cpu("avx512", AVX512, **new), arm(**new)
    )  # fmt: skip
    assert list(both) == [
        ("cpu-armv8.2-cp310", "cpu-avx2-cp310"),
        ("cpu-armv8.2-cp312", "cpu-avx512-cp312"),
    ]


def test_an_index_that_cannot_be_made_is_reported(tmp_path):
    sve = arm("armv8.4sve", ("asimd", "sve"))
    sve2 = arm("armv9", ("asimd", "sve2"))
    plan = make_plan([make_group((t.isa,), t) for t in (sve, sve2, cpu("avx2", AVX2))])
    (told,) = index_warnings(plan, IMAGES, wheels_of(plan))
    assert told == (
        "cp311 gets no index: none of cpu-armv8.4sve-cp311, cpu-armv9-cp311 runs on the nodes of "
        "all the others."
    )
    assert f"\n# {told}\n" in containers(plan, IMAGES, wheels_of(plan))["build.sh"]
    assert not any("manifest" in call for call in built(tmp_path, plan, "--push")[1])
    assert index_warnings(six_nodes(), IMAGES, wheels_of(six_nodes())) == ()


def test_groups_without_wheels_or_base_are_left_out():
    odd = make_target(libc=TargetLibc(family="glibc", floor="2.99"))
    plan = make_plan((make_group(("a",), odd), make_group(("b",), make_target(isa="avx"))))
    assert list(containers(plan, IMAGES, wheels_of(plan))) == [
        "build.sh", "cpu-avx-cp311/Containerfile", "cpu-avx-cp311/requirements.txt",
    ]  # fmt: skip
    script = containers(plan, IMAGES, {})["build.sh"]
    assert "Builds the images of no group" in script


def test_images_need_a_name():
    plan = make_plan((make_group(wheels=(make_wheel(),)),))
    with pytest.raises(UsageError) as refused:
        containers(plan, Delivery(), wheels_of(plan))
    assert "--image-prefix" in refused.value.fix
