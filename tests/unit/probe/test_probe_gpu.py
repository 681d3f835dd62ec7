"""GPUs by the driver's word, else by their PCI ids."""

from __future__ import annotations

import pytest

from fleetbuild.models import Facts
from fleetbuild.probe.parse import facts_of

HEADER = "index, name, compute_cap, driver_version, memory.total [MiB], uuid\n"
RTX_3060 = "0, NVIDIA GeForce RTX 3060, 8.6, 550.54.15, 12288 MiB, GPU-0\n"
OLD = "index, name, driver_version, memory.total [MiB], uuid\n"


def lspci(*ids: str, kind: str = "3D controller [0302]") -> str:
    return "".join(
        f"0000:{n:02x}:00.0 {kind}: NVIDIA Corporation Device [10de:{device}] (rev a1)\n"
        for n, device in enumerate(ids, 3)
    )


def gpus(smi: str | None = None, pci: str | None = None) -> Facts:
    texts = {"uname": "Linux 6 x86_64", "cpuinfo": "flags: lm", "nvidia-smi": smi, "lspci": pci}
    return facts_of({section: text for section, text in texts.items() if text is not None})


def test_the_driver_tells() -> None:
    facts = gpus(HEADER + RTX_3060, lspci("2503"))
    assert facts.sms == ("8.6",)
    assert facts.driver == "550.54.15"
    assert [gpu.model_dump() for gpu in facts.gpus] == [
        {"name": "NVIDIA GeForce RTX 3060", "sm": "8.6", "memory_mb": 12288}
    ]
    assert facts.warnings == ()


def test_columns_are_told_by_their_names() -> None:
    facts = gpus("Driver_Version, memory.total, compute_cap, name\n550.54, 100, 12.0, X\n")
    assert (facts.sms, facts.driver, facts.gpus[0].memory_mb) == (("12.0",), "550.54", 100)


def test_sms_are_sorted_as_numbers() -> None:
    rows = "".join(f"{n}, X, {sm}, 580.65, 1 MiB, U\n" for n, sm in enumerate(["12.0", "9.0"] * 2))
    assert gpus(HEADER + rows).sms == ("9.0", "12.0")


def test_an_older_driver_leaves_it_to_the_device() -> None:
    facts = gpus(OLD + "0, Tesla K40c, 470.256.02, 11441 MiB, GPU-0\n", lspci("1024"))
    assert (facts.sms, facts.gpus[0].sm, facts.warnings) == (("3.5",), "3.5", ())


def test_rows_and_devices_go_in_the_order_of_the_bus() -> None:
    rows = "0, Tesla K40c, 470.1, 1 MiB, A\n1, Tesla K80, 470.1, 1 MiB, B\n"
    assert [gpu.sm for gpu in gpus(OLD + rows, lspci("1024", "102d")).gpus] == ["3.5", "3.7"]


def test_a_gpu_that_is_not_served_makes_the_order_uncertain() -> None:
    row = "0, Tesla K80, 470.1, 1 MiB, A\n"
    facts = gpus(OLD + row, lspci("1024", "102d"))
    assert facts.sms == ()
    assert facts.warnings == (
        (
            "The SM of Tesla K80 is unknown: its driver does not tell it, and neither does its PCI "
            "device. Set fleetbuild_sms for this host."
        ),
        "2 GPUs are on the bus, and the driver serves 1 of them.",
    )
    assert gpus(OLD + row, lspci("102d", "102d")).sms == ("3.7",)


@pytest.mark.parametrize("value", ["[N/A]", "[Not Supported]", "", "8", "nonsense", "8.66"])
def test_no_value_is_no_sm(value: str) -> None:
    row = f"0, X, {value}, [N/A], [N/A], U\n"
    facts = gpus(HEADER + row)
    assert (facts.sms, facts.driver, facts.gpus[0].memory_mb) == ((), None, None)
    assert gpus(HEADER + row, lspci("2503")).sms == ("8.6",)


def test_text_around_the_rows_is_told() -> None:
    lost = "Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.\n"
    facts = gpus(HEADER + RTX_3060 + lost)
    assert facts.sms == ("8.6",)
    assert facts.warnings == (f"nvidia-smi also says: {lost.strip()}",)


def test_no_gpu_files_is_no_gpu() -> None:
    facts = gpus()
    assert (facts.sms, facts.gpus, facts.warnings) == ((), (), ())


def test_a_gpu_without_a_driver_is_a_warning() -> None:
    facts = gpus(None, lspci("2204"))
    assert facts.sms == ()
    assert [(gpu.name, gpu.sm) for gpu in facts.gpus] == [
        ("NVIDIA Corporation Device [10de:2204]", None)
    ]
    assert facts.warnings == (
        (
            "The GPU 0000:03:00.0 NVIDIA Corporation Device [10de:2204] has no working driver, so "
            "this is a CPU node."
        ),
    )


def test_a_driver_that_fails_is_quoted() -> None:
    said = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
        "that the latest NVIDIA driver is installed and running.\n\n"
    )
    facts = gpus(said, lspci("2204"))
    assert facts.sms == ()
    assert f"so this is a CPU node. nvidia-smi says: {said.strip()}" in facts.warnings[0]


def test_no_devices_is_no_gpu() -> None:
    facts = gpus("No devices were found\n")
    assert (facts.sms, facts.gpus) == ((), ())
    assert facts.warnings == ("No GPU is seen. nvidia-smi says: No devices were found",)
    assert gpus(HEADER).gpus == ()


def test_only_display_controllers_are_gpus() -> None:
    text = (
        "0000:03:00.1 Audio device [0403]: NVIDIA Corporation Device [10de:1aef] (rev a1)\n"
        "0000:04:00.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3]\n"
        "0000:05:00.0 VGA compatible controller [0300]: Matrox [102b:0536]\n"
        "garbage\n"
    )
    assert gpus(None, text).gpus == ()


@pytest.mark.parametrize(
    "line",
    [
        "0000:03:00.0 0300: 10de:2204 (rev a1)",
        (
            "03:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [GeForce RTX 3090] "
            "[10de:2204] (rev a1)"
        ),
    ],
)
def test_other_forms_of_lspci_are_read(line: str) -> None:
    assert gpus(OLD + "0, RTX 3090, 450.1, 1 MiB, U", line).sms == ("8.6",)
    assert gpus(None, line).gpus[0].name.endswith("[10de:2204]")


def test_a_name_cannot_carry_escapes_or_go_on_forever() -> None:
    (gpu,) = gpus(HEADER + f"0, \x1b]0;x\x07\u202e{'y' * 500}, 8.6, 550.1, 1 MiB, U").gpus
    assert gpu.name.startswith("]0;xyyy")
    assert len(gpu.name) == 100
    assert gpu.name.isprintable()
