"""The CPU by its own flags, whatever the text is."""

from __future__ import annotations

import pytest

from fleetbuild.models import Facts
from fleetbuild.probe.parsing.facts import facts_of

V2 = "lm cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
V3 = V2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe"
V4 = V3 + " avx512f avx512bw avx512cd avx512dq avx512vl"
X86 = "Linux 5.15.0-91-generic x86_64\n"
ARM = "Linux 6.1.79 aarch64\n"


def x86(*flags: str, model: int = 63, stepping: int = 2) -> str:
    blocks = (
        f"processor\t: {n}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\n"
        f"model name\t: Intel(R) Xeon(R)\nstepping\t: {stepping}\nflags\t\t: {text}\n"
        f"vmx flags\t: amx_tile\n"
        for n, text in enumerate(flags)
    )
    return "\n".join(blocks)


def test_a_node_is_of_the_best_rung_that_its_flags_reach() -> None:
    facts = facts_of({"uname": X86, "cpuinfo": x86(V3)})
    assert (facts.state, facts.arch, facts.isa) == ("ok", "x86_64", "avx2")
    assert facts.features == tuple(sorted(V3.split()))
    assert facts.os.kernel == "5.15.0-91-generic"
    assert facts.warnings == ()


def test_only_features_of_every_processor_count() -> None:
    facts = facts_of({"uname": X86, "cpuinfo": x86(V4, V4, V3)})
    assert facts.isa == "avx2"


def test_features_of_the_model_that_the_node_lacks_are_masked() -> None:
    facts = facts_of({"uname": X86, "cpuinfo": x86(V3, model=85, stepping=4)})
    assert facts.isa == "avx2"
    assert facts.hypervisor_masked == ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")


def test_a_feature_that_some_processors_show_is_not_masked() -> None:
    facts = facts_of({"uname": X86, "cpuinfo": x86(V4, V3, model=85, stepping=4)})
    assert (facts.isa, facts.hypervisor_masked) == ("avx2", ())
    assert "Its processors differ" in facts.warnings[0]


def test_a_model_of_another_architecture_masks_nothing() -> None:
    text = "Features: asimd\nvendor_id: GenuineIntel\ncpu family: 6\nmodel: 62\n"
    facts = facts_of({"uname": ARM, "cpuinfo": text})
    assert (facts.isa, facts.hypervisor_masked) == ("armv8", ())


def test_an_old_arm_kernel_lists_features_once() -> None:
    text = "processor : 0\nprocessor : 1\nFeatures : fp asimd atomics asimdhp asimddp\n"
    assert facts_of({"uname": ARM, "cpuinfo": text}).isa == "armv8.2"


A55 = "0xd05"
A76 = "0xd0b"
BIG_LITTLE = "fp asimd evtstrm aes crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
V1 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs i8mm bf16 dgh rng"
)


def arm(*cores: tuple[str, str]) -> str:
    """Blocks of a current kernel: part and features of each core."""
    return "\n".join(
        f"processor\t: {n}\nBogoMIPS\t: 50.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
        f"CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {part}\nCPU revision\t: 0\n"
        for n, (part, features) in enumerate(cores)
    )


def test_features_of_only_some_processors_are_a_warning_and_not_used() -> None:
    facts = facts_of({"uname": X86, "cpuinfo": x86(V4, V4, V3, model=151)})
    assert facts.isa == "avx2"
    assert facts.hypervisor_masked == ()
    assert facts.warnings == (
        (
            "Its processors differ: only some of them have avx512bw, avx512cd, avx512dq, avx512f, "
            "avx512vl. Code may run on any of them, so only what all of them have is used."
        ),
    )


def test_processors_may_differ_in_flags_outside_of_rungs() -> None:
    assert facts_of({"uname": X86, "cpuinfo": x86(V3 + " hwp_epp", V3)}).warnings == ()


def test_big_and_little_cores_with_equal_features_give_no_warning() -> None:
    text = arm(*[(A55, BIG_LITTLE)] * 4, *[(A76, BIG_LITTLE)] * 4)
    facts = facts_of({"uname": ARM, "cpuinfo": text})
    assert (facts.isa, facts.hypervisor_masked, facts.warnings) == ("armv8.2", (), ())


def test_every_kind_of_core_that_has_a_name_is_named() -> None:
    old = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
    facts = facts_of({"uname": ARM, "cpuinfo": arm(("0xd03", old), ("0xd08", old))})
    assert facts.microarchitecture == "cortex_a72"
    n1 = BIG_LITTLE + " pmull sha1 sha2 ssbs"
    facts = facts_of({"uname": ARM, "cpuinfo": arm(("0xd0c", n1), ("0xd0c", n1), ("0xd40", V1))})
    assert facts.microarchitecture == "neoverse_n1"


@pytest.mark.parametrize(("model", "name"), [(63, "haswell"), (106, "icelake"), (1, "ivybridge")])
def test_the_model_names_the_microarchitecture_although_features_are_hidden(model, name) -> None:
    v3 = V3 + " aes fsgsbase mmx movbe pclmulqdq rdrand sse sse2"
    facts = facts_of({"uname": X86, "cpuinfo": x86(v3, model=model)})
    assert facts.microarchitecture == name


def test_a_model_of_another_architecture_names_nothing() -> None:
    text = "Features: asimd\nvendor_id: GenuineIntel\ncpu family: 6\nmodel: 62\n"
    assert facts_of({"uname": ARM, "cpuinfo": text}).microarchitecture is None


def test_features_of_big_cores_only_are_not_used() -> None:
    little = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
    text = arm((A76, BIG_LITTLE), ("0xd03", little))
    facts = facts_of({"uname": ARM, "cpuinfo": text})
    assert facts.isa == "armv8"
    assert facts.hypervisor_masked == ()  # a Cortex-A53 has no more than that
    assert "only some of them have asimddp, asimdhp, atomics." in facts.warnings[0]


def test_expected_features_are_checked_for_each_kind_of_core() -> None:
    text = arm((A76, BIG_LITTLE), ("0xd40", V1.replace(" sve", "").replace(" bf16", "")))
    facts = facts_of({"uname": ARM, "cpuinfo": text})
    assert facts.hypervisor_masked == ("bf16", "sve")


def test_a_hypervisor_can_hide_sve() -> None:
    facts = facts_of({"uname": ARM, "cpuinfo": arm(("0xd4f", BIG_LITTLE))})
    assert (facts.isa, facts.hypervisor_masked) == ("armv8.2", ("bf16", "i8mm", "sve", "sve2"))


@pytest.mark.parametrize(
    ("said", "bits"),
    [
        ("32\n", 256),
        ("16", 128),
        ("64\n", 512),
        ("256\n", 2048),
        ("0\n", None),
        ("20\n", None),
        ("272\n", None),
        ("-32\n", None),
        ("thirty two\n", None),
        ("", None),
    ],
)
def test_the_length_of_sve_registers(said: str, bits: int | None) -> None:
    capture = {"uname": ARM, "cpuinfo": arm(("0xd40", V1)), "sve": said}
    assert (facts_of(capture).isa, facts_of(capture).sve_bits) == ("armv8.4sve", bits)


def test_without_sve_the_register_length_is_unknown() -> None:
    capture = {"uname": ARM, "cpuinfo": arm((A76, BIG_LITTLE)), "sve": "32\n"}
    assert facts_of(capture).sve_bits is None
    assert facts_of({"uname": ARM, "cpuinfo": arm(("0xd40", V1))}).sve_bits is None


def test_a_cpu_below_every_rung_has_no_rung() -> None:
    facts = facts_of({"uname": ARM, "cpuinfo": "Features : half thumb\n"})
    assert (facts.state, facts.isa, facts.features) == ("ok", None, ("half", "thumb"))


@pytest.mark.parametrize(
    ("cpuinfo", "arch"),
    [
        (x86("fpu lm sse2"), "x86_64"),
        ("Features : fp asimd\n", "aarch64"),
        (x86("fpu sse2"), "i686"),
        ("Features : half thumb neon\n", "armv7l"),
        ("processor : 0\ncpu : POWER9, altivec supported\n", "ppc64le"),
        ("hart : 0\nisa : rv64imafdc\n", "riscv64"),
        ("vendor_id : IBM/S390\nfeatures : esan3 zarch\n", "s390x"),
        ("what : is this\n", None),
    ],
)
def test_without_uname_cpuinfo_shows_the_architecture(cpuinfo: str, arch: str | None) -> None:
    assert facts_of({"cpuinfo": cpuinfo}).arch == arch


@pytest.mark.parametrize("machine", ["ppc64le", "s390x", "riscv64", "armv7l", "i686"])
def test_other_architectures_are_unsupported(machine: str) -> None:
    facts = facts_of({"uname": f"Linux 6.1.0 {machine}", "cpuinfo": x86(V3)})
    assert (facts.state, facts.arch, facts.isa) == ("unsupported", machine, None)
    assert facts.reason == (f"The architecture {machine} is not supported: x86_64 and aarch64 are.")


@pytest.mark.parametrize("uname", ["Darwin 23.1.0 arm64", "FreeBSD 14.0-RELEASE amd64"])
def test_other_systems_are_unsupported(uname: str) -> None:
    facts = facts_of({"uname": uname, "cpuinfo": x86(V3)})
    assert facts.state == "unsupported"
    assert facts.reason == f"{uname.split(maxsplit=1)[0]} is not supported: only Linux is."


def test_two_names_of_an_architecture_are_one() -> None:
    assert facts_of({"uname": "Linux 6.1 arm64", "cpuinfo": "Features: asimd"}).arch == "aarch64"


def warned(facts: Facts) -> str:
    assert (facts.state, facts.isa, facts.features) == ("ok", None, ())
    (warning,) = facts.warnings
    return warning


@pytest.mark.parametrize("capture", [{"uname": X86}, {"uname": X86, "cpuinfo": "\n"}])
def test_without_cpuinfo_no_rung_is_guessed(capture: dict[str, str]) -> None:
    assert warned(facts_of(capture)) == ("cpuinfo is missing, so the CPU's features are unknown.")


def test_without_flags_no_rung_is_guessed() -> None:
    facts = facts_of({"uname": X86, "cpuinfo": "model: \x1b[31mred\x00\n"})
    assert warned(facts) == (
        "cpuinfo names no flags, so the CPU's features are unknown: 'model: [31mred'."
    )


def test_without_uname_and_a_known_shape_nothing_is_guessed() -> None:
    facts = facts_of({"uname": "\x00\x01", "cpuinfo": "model: x\n"})
    assert facts.arch is None
    assert warned(facts) == "Neither uname nor cpuinfo shows the architecture."


def test_a_section_that_is_too_long_is_not_read() -> None:
    text = x86(V4) + "x" * (16 * 1024 * 1024)
    facts = facts_of({"uname": X86, "cpuinfo": text, "release": text})
    assert facts.isa is None
    assert facts.warnings[:2] == (
        "cpuinfo is longer than 16 MB and is not read.",
        "release is longer than 4 MB and is not read.",
    )


def test_a_large_machine_is_read() -> None:
    facts = facts_of({"uname": X86, "cpuinfo": x86(*([V4 + " x" * 600] * 1024))})
    assert facts.isa == "avx512"
