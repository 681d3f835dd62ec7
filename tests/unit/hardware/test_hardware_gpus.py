"""GPUs by their PCI ids, CPUs by their model numbers."""

from __future__ import annotations

import re

import pytest

from fleetbuild.hardware import gpus
from fleetbuild.hardware.cpus import expected_rung
from fleetbuild.hardware.gpus import SMS, sm_of_device, sm_of_soc, sm_order


@pytest.mark.parametrize(
    ("device", "sm"),
    [
        ("10de:1180", "3.0"),  # GeForce GTX 680
        ("10de:1024", "3.5"),  # Tesla K40c
        ("10de:102d", "3.7"),  # Tesla K80
        ("10de:1380", "5.0"),  # GeForce GTX 750 Ti
        ("10de:13c2", "5.2"),  # GeForce GTX 970
        ("10de:15f8", "6.0"),  # Tesla P100
        ("10de:1b38", "6.1"),  # Tesla P40
        ("10de:1db4", "7.0"),  # Tesla V100
        ("10de:1eb8", "7.5"),  # T4
        ("10de:2184", "7.5"),  # GeForce GTX 1660
        ("10de:20b0", "8.0"),  # A100
        ("10de:20b7", "8.0"),  # A30
        ("10de:2204", "8.6"),  # GeForce RTX 3090
        ("10de:2503", "8.6"),  # GeForce RTX 3060
        ("10DE:2235", "8.6"),  # A40
        ("10de:26b9", "8.9"),  # L40S
        ("10de:27b8", "8.9"),  # L4
        ("10de:2330", "9.0"),  # H100
        ("10de:2901", "10.0"),  # B200
        ("10de:3182", "10.3"),  # B300
        ("10de:2b85", "12.0"),  # GeForce RTX 5090
        ("10de:2e12", "12.1"),  # GB10
        ("10de:22a3", None),  # an NVSwitch
        ("10de:1aef", None),  # the audio function of a GPU
        ("10de:ffff", None),
        ("1002:2204", None),  # not NVIDIA's
        ("nonsense", None),
        ("", None),
    ],
)
def test_the_sm_of_a_device_is_found(device: str, sm: str | None) -> None:
    assert sm_of_device(device) == sm


def test_every_device_has_an_sm_that_is_described() -> None:
    devices = gpus._devices(gpus._DATA["chips"])
    assert len(devices) > 800
    assert set(devices.values()) <= set(SMS)
    assert all(re.fullmatch("[0-9a-f]{4}", device) for device in devices)


def test_no_device_is_of_two_chips() -> None:
    listed = [d for chip in gpus._DATA["chips"].values() for d in chip["devices"].split()]
    assert len(listed) == len(set(listed))


def test_sms_are_in_numeric_order() -> None:
    assert sorted(SMS, key=sm_order) == list(SMS)
    assert sm_order("9.0") < sm_order("9.0a") < sm_order("12.0")


def test_an_sm_knows_its_toolkits() -> None:
    assert (SMS["3.5"].first_cuda, SMS["3.5"].last_cuda) == ("7.0", "11.8")
    assert (SMS["8.6"].first_cuda, SMS["8.6"].last_cuda) == ("11.1", None)


def intel(model: int, stepping: int | None = 1, name: str = "Xeon") -> dict[str, str]:
    lines = {"vendor_id": "GenuineIntel", "cpu family": "6", "model": str(model)}
    return lines | {"model name": name} | ({} if stepping is None else {"stepping": str(stepping)})


@pytest.mark.parametrize(
    ("processor", "rung"),
    [
        (intel(62), "avx"),
        (intel(63), "avx2"),
        (intel(85, 4), "avx512"),
        (intel(85, 7), "avx512vnni"),
        (intel(85, 11), "avx512bf16"),
        (intel(85, None), None),  # three generations share the model number
        (intel(60, 3, "Intel(R) Pentium(R) CPU G3220"), None),
        (intel(1), None),
        (intel(87, 1, "Intel(R) Xeon Phi(TM) CPU 7250"), "avx2"),  # AVX512F without AVX512BW
        ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "17"}, "avx512bf16"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "0x19", "model": "nonsense"}, None),
        ({"vendor_id": "AuthenticAMD", "cpu family": "26", "model": "80"}, "avx512bf16"),  # Zen 6
        (intel(204), "avx2"),  # Panther Lake
        (intel(221), "avx2"),  # Clearwater Forest
        ({"vendor_id": "GenuineIntel"}, None),
        ({"CPU implementer": "0x41", "CPU part": "0xd0c"}, "armv8.2"),
        ({"CPU implementer": "0x41", "CPU part": "0xd4f"}, "armv9"),
        ({"CPU implementer": "0x41", "CPU part": "0xfff"}, None),
        ({"CPU implementer": "0x41", "CPU part": "0xd87"}, "armv9"),  # Cortex-A725, of GB10
        ({"CPU implementer": "0x4e", "CPU part": "0x010"}, "armv9"),  # Olympus, of Vera
        ({"CPU implementer": "0x46", "CPU part": "0x001"}, "armv8"),  # SVE without dot products
        ({"CPU implementer": "0x6d", "CPU part": "0xd49"}, "armv9"),
        ({}, None),
    ],
)
def test_the_rung_of_a_cpu_model_is_found(processor: dict[str, str], rung: str | None) -> None:
    found = expected_rung(processor)
    assert (found.name if found else None) == rung


@pytest.mark.parametrize(
    ("compatible", "sm"),
    [
        ("nvidia,tegra210", "5.3"),
        ("nvidia,tegra264", "11.0"),
        ("nvidia,tegra20", None),
        ("nvidia,p3737-0000+p3701-0005", None),
        ("other,tegra234", None),
        ("", None),
    ],
)
def test_the_sm_of_a_chip(compatible: str, sm: str | None) -> None:
    assert sm_of_soc(compatible) == sm
    assert sm is None or sm in SMS
