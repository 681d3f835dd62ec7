"""Verdicts: what dies, where, and what stays undecided."""

import pytest

from fleetbuild.audit.models import ElfAudit, FeatureUse, Kernels
from fleetbuild.extensions.check.judge import judge
from fleetbuild.extensions.check.needs import WheelNeeds
from fleetbuild.hardware.cpu_models import CPU_MODELS
from fleetbuild.models.verdict import DEATHS, VERDICT_WORDS

IVY = CPU_MODELS["IvyBridge"].features


def use(feature, when="default"):
    return FeatureUse(
        feature=feature, when=when, instruction="x", address=0x1000, symbol=f"fn_{feature}"
    )


def verdict(*uses, features=IVY, package="demo", problems=(), **elf):
    one = ElfAudit(path="demo/_c.so", arch="x86_64", features=uses, **elf)
    needs = WheelNeeds(file="demo.whl", files=(one,), problems=problems)
    return judge(needs, package=package, arch="x86_64", features=features)


@pytest.mark.parametrize(
    ("uses", "elf", "said"),
    [
        ([], {}, "runs"),
        ([use("avx")], {}, "runs"),
        ([use("avx2", "load")], {}, "dies-at-import"),
        ([use("avx2", "load")], {"checks_cpu": True}, "dies-at-import"),
        ([use("avx2")], {}, "dies-in-use"),
        ([use("avx2")], {"checks_cpu": True}, "undecided"),
        ([use("avx2", "guarded")], {"checks_cpu": True}, "runs"),
        ([use("avx2"), use("fma", "load")], {}, "dies-at-import"),
        ([], {"unread": ("a damaged GPU entry",)}, "undecided"),
    ],
)
def test_when_code_runs_decides(uses, elf, said):
    assert verdict(*uses, **elf).verdict == said


def test_the_file_and_the_symbol_are_named():
    found = verdict(use("avx2", "load"))
    assert "demo/_c.so" in found.where
    assert "avx2 in `fn_avx2`" in found.where
    assert found.features == ("avx2",)
    assert found.evidence == "static"


def test_only_a_check_that_could_not_be_followed_leaves_it_to_a_run():
    assert verdict(use("avx2"), checks_cpu=True).checks
    assert not verdict(use("avx2"), checks_cpu=True, unread=("an entry",)).checks
    assert not verdict(use("avx2")).checks


def test_features_behind_a_check_are_kept_apart():
    assert verdict(use("avx2", "guarded"), use("avx", "guarded")).guarded == ("avx2",)


def test_a_file_named_for_a_level_beside_a_plain_one_is_left_to_the_package():
    files = tuple(
        ElfAudit(
            path=path, arch="x86_64", features=(use("avx2", "load"),) if "avx2" in path else ()
        )
        for path in ("demo/_c.abi3.so", "demo/_c_avx2.abi3.so")
    )
    both = WheelNeeds(file="demo.whl", files=files)
    found = judge(both, package="demo", arch="x86_64", features=IVY)
    assert (found.verdict, found.guarded) == ("runs", ("avx2",))
    alone = WheelNeeds(file="demo.whl", files=files[1:])
    assert judge(alone, package="demo", arch="x86_64", features=IVY).dies
    linking = (files[0].model_copy(update={"needed": ("_c_avx2.abi3.so",)}), files[1])
    loaded = WheelNeeds(file="demo.whl", files=linking)
    assert judge(loaded, package="demo", arch="x86_64", features=IVY).dies
    beyond = files[1].model_copy(update={"features": (use("avx512f", "load"),)})
    haswell = CPU_MODELS["Haswell"].features
    wrong = WheelNeeds(file="demo.whl", files=(files[0], beyond))
    assert judge(wrong, package="demo", arch="x86_64", features=haswell).dies


@pytest.mark.parametrize("path", ["demo/impl/avx2.abi3.so", "demo/avx2/_c.so", "demo/_raw_avx2.so"])
def test_a_file_for_a_level_beside_other_files_is_not_a_death(path):
    level = ElfAudit(path=path, arch="x86_64", features=(use("avx2", "load"),))
    plain = ElfAudit(path="demo/impl/generic.abi3.so", arch="x86_64")
    found = judge(
        WheelNeeds(file="demo.whl", files=(level, plain)),
        package="demo", arch="x86_64", features=IVY,
    )  # fmt: skip
    assert (found.verdict, found.checks) == ("undecided", True)
    assert f"{path} uses avx2" in found.where
    alone = WheelNeeds(file="demo.whl", files=(level,))
    assert judge(alone, package="demo", arch="x86_64", features=IVY).dies
    asking = plain.model_copy(update={"path": "demo/_cpuid.so", "checks_cpu": True})
    for needs in (
        WheelNeeds(file="demo.whl", files=(level, plain), requires=("archspec",)),
        WheelNeeds(file="demo.whl", files=(level, plain, asking)),
    ):
        assert judge(needs, package="demo", arch="x86_64", features=IVY).verdict == "runs"


def test_code_for_another_architecture_alone_is_never_fine():
    arm = WheelNeeds(file="demo.whl", files=(ElfAudit(path="_c.so", arch="aarch64"),))
    found = judge(arm, package="demo", arch="x86_64", features=IVY)
    assert (found.verdict, found.where) == (
        "undecided",
        "it has machine code for aarch64, not for x86_64",
    )


def test_a_package_that_checks_the_cpu_itself_refuses():
    assert verdict(use("avx2"), package="NumPy").verdict == "refuses"


def test_a_file_that_cannot_be_read_is_never_fine():
    found = verdict(problems=("demo/_c.so cannot be read: it ends before its headers do",))
    assert found.verdict == "undecided"
    assert "cannot be read" in found.where


def test_files_for_other_architectures_do_not_count():
    one = ElfAudit(path="arm.so", arch="aarch64", features=(use("sve"),))
    own = ElfAudit(path="x86.so", arch="x86_64")
    needs = WheelNeeds(file="demo.whl", files=(one, own))
    assert judge(needs, package="demo", arch="x86_64", features=IVY).verdict == "runs"


@pytest.mark.parametrize(
    ("sms", "ptx", "sm", "said"),
    [
        (("6.0", "7.0"), (), "6.1", "runs"),
        (("7.0", "8.0"), (), "6.1", "no-kernel"),
        (("8.0",), (), "8.6", "runs"),
        (("9.0a",), (), "9.0", "runs"),
        (("9.0a",), (), "10.0", "no-kernel"),
        (("10.0f",), (), "10.3", "runs"),
        (("8.0",), ("5.2",), "6.1", "undecided"),  # a driver that is new enough compiles it
        (("8.0",), ("9.0",), "6.1", "no-kernel"),
        ((), (), "6.1", "runs"),  # no GPU code
    ],
)
def test_gpu_code_must_serve_the_sm(sms, ptx, sm, said):
    one = ElfAudit(path="lib.so", arch="x86_64", sms=sms, ptx=ptx)
    needs = WheelNeeds(file="demo.whl", files=(one,))
    found = judge(needs, package="demo", arch="x86_64", features=IVY, sms=(sm,))
    assert found.verdict == said


def on_gpu(sm, package="demo", **about):
    one = ElfAudit(path="lib.so", arch="x86_64", **about)
    needs = WheelNeeds(file="demo.whl", files=(one,))
    return judge(needs, package=package, arch="x86_64", features=IVY, sms=(sm,))


SOME = (
    Kernels(codes=("6.1", "8.0"), names=("add",)),
    Kernels(codes=("8.0",), names=("attend", "scale")),
)


def test_a_kernel_that_lacks_the_sm_is_named_though_the_file_lists_it():
    found = on_gpu("6.1", sms=("6.1", "8.0"), kernels=SOME)
    assert found.verdict == "no-kernel"
    assert "`attend`, `scale`" in found.where
    assert "`add`" not in found.where


def test_libraries_of_nvidia_choose_among_their_kernels():
    found = on_gpu("6.1", "nvidia-cublas", sms=("6.1", "8.0"), kernels=SOME)
    assert found.verdict == "undecided"  # on an H200, libraries with such files compute
    assert "`attend`, `scale`" in found.where
    # A container without kernels lists an SM, too.
    assert on_gpu("9.0", "nvidia-cublas", sms=("8.0", "9.0"), kernels=SOME).verdict == "no-kernel"


def test_gpu_code_of_nvidia_without_a_kernel_decides_nothing():
    assert on_gpu("9.0", "nvidia-cufft", sms=("7.5",)).verdict == "undecided"
    assert on_gpu("9.0", "nvidia-cufft", sms=("7.5",), unread=("kernels",)).verdict == "no-kernel"
    assert on_gpu("9.0", sms=("7.5",)).verdict == "no-kernel"


def test_every_verdict_has_words_and_only_failures_are_deaths():
    assert set(VERDICT_WORDS) - DEATHS == {"runs", "undecided"}
