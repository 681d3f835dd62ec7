"""GPUs by the driver's word, else by their PCI ids."""

from __future__ import annotations

import pytest

from fleetbuild.models import Facts, Gpu
from fleetbuild.probe.parsing.facts import facts_of

HEADER = "index, name, compute_cap, driver_version, memory.total [MiB], uuid\n"
RTX_3060 = "0, NVIDIA GeForce RTX 3060, 8.6, 550.54.15, 12288 MiB, GPU-0\n"
OLD = "index, name, driver_version, memory.total [MiB], uuid\n"


def lspci(*ids: str, kind: str = "3D controller [0302]") -> str:
    return "".join(
        f"0000:{n:02x}:00.0 {kind}: NVIDIA Corporation Device [10de:{device}] (rev a1)\n"
        for n, device in enumerate(ids, 3)
    )


def gpus(
    smi: str | None = None, pci: str | None = None, tree: str | None = None, mig: str | None = None
) -> Facts:
    texts = {
        "uname": "Linux 6 x86_64",
        "cpuinfo": "flags: lm",
        "nvidia-smi": smi,
        "lspci": pci,
        "device-tree": tree,
        "mig": mig,
    }
    return facts_of({section: text for section, text in texts.items() if text is not None})


def test_the_driver_reports_model_and_sm() -> None:
    facts = gpus(HEADER + RTX_3060, lspci("2503"))
    assert facts.sms == ("8.6",)
    assert facts.driver == "550.54.15"
    assert facts.gpus == (Gpu(name="NVIDIA GeForce RTX 3060", sm="8.6", memory_mb=12288),)
    assert facts.warnings == ()


def test_columns_are_found_by_their_names() -> None:
    facts = gpus("Driver_Version, memory.total, compute_cap, name\n550.54, 100, 12.0, X\n")
    assert (facts.sms, facts.driver, facts.gpus[0].memory_mb) == (("12.0",), "550.54", 100)


def test_sms_are_sorted_as_numbers() -> None:
    rows = "".join(f"{n}, X, {sm}, 580.65, 1 MiB, U\n" for n, sm in enumerate(["12.0", "9.0"] * 2))
    assert gpus(HEADER + rows).sms == ("9.0", "12.0")


def test_without_compute_cap_the_pci_device_decides_the_sm() -> None:
    facts = gpus(OLD + "0, Tesla K40c, 470.256.02, 11441 MiB, GPU-0\n", lspci("1024"))
    assert (facts.sms, facts.gpus[0].sm, facts.warnings) == (("3.5",), "3.5", ())


def test_rows_and_devices_go_in_the_order_of_the_bus() -> None:
    rows = "0, Tesla K40c, 470.1, 1 MiB, A\n1, Tesla K80, 470.1, 1 MiB, B\n"
    assert [gpu.sm for gpu in gpus(OLD + rows, lspci("1024", "102d")).gpus] == ["3.5", "3.7"]


def test_a_gpu_without_a_driver_makes_the_order_uncertain() -> None:
    row = "0, Tesla K80, 470.1, 1 MiB, A\n"
    facts = gpus(OLD + row, lspci("1024", "102d"))
    assert facts.sms == ()
    assert facts.warnings == (
        (
            "The SM of Tesla K80 is unknown: neither its driver nor its PCI device shows it. "
            "Set fleetbuild_sms for this host."
        ),
        "2 GPUs are on the bus, but the driver serves only 1.",
    )
    assert gpus(OLD + row, lspci("102d", "102d")).sms == ("3.7",)


@pytest.mark.parametrize("value", ["[N/A]", "[Not Supported]", "", "8", "nonsense", "8.66"])
def test_an_invalid_value_is_not_an_sm(value: str) -> None:
    row = f"0, X, {value}, [N/A], [N/A], U\n"
    facts = gpus(HEADER + row)
    assert (facts.sms, facts.driver, facts.gpus[0].memory_mb) == ((), None, None)
    assert gpus(HEADER + row, lspci("2503")).sms == ("8.6",)


def test_text_around_the_rows_becomes_a_warning() -> None:
    lost = "Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.\n"
    facts = gpus(HEADER + RTX_3060 + lost)
    assert facts.sms == ("8.6",)
    assert facts.warnings == (f"nvidia-smi also says: {lost.strip()}",)


def test_without_gpu_files_no_gpu_is_found() -> None:
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


def test_an_empty_device_list_means_no_gpu() -> None:
    facts = gpus("No devices were found\n")
    assert (facts.sms, facts.gpus) == ((), ())
    assert facts.warnings == ("No GPU found. nvidia-smi says: No devices were found",)
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


def test_a_gpus_name_is_printable_and_bounded() -> None:
    (gpu,) = gpus(HEADER + f"0, \x1b]0;x\x07\u202e{'y' * 500}, 8.6, 550.1, 1 MiB, U").gpus
    assert gpu.name.startswith("]0;xyyy")
    assert len(gpu.name) == 100
    assert gpu.name.isprintable()


def board(chip: str, *devices: str, model: str = "NVIDIA Jetson AGX Orin Developer Kit") -> str:
    """The device-tree section of a board with this chip."""
    names = [f"compatible: nvidia,p3737-0000+p3701-0005\ncompatible: nvidia,{chip}\n"]
    return f"model: {model}\n" + "".join(names + [f"device: {device}\n" for device in devices])


# What JetPack 6 prints; JetPack 5 and older have no nvidia-smi.
ORIN = "0, Orin (nvgpu), [N/A], 540.4.0, [N/A], [N/A]\n"


@pytest.mark.parametrize(
    ("chip", "sm"),
    [
        ("tegra210", "5.3"),
        ("tegra186", "6.2"),
        ("tegra194", "7.2"),
        ("tegra234", "8.7"),
        ("tegra264", "11.0"),
    ],
)
def test_a_jetson_without_nvidia_smi_has_its_gpu(chip: str, sm: str) -> None:
    facts = gpus(tree=board(chip, "/dev/nvhost-gpu"))
    assert (facts.sms, facts.warnings) == ((sm,), ())
    assert facts.gpus[0].name == "NVIDIA Jetson AGX Orin Developer Kit"


def test_a_jetson_with_an_empty_nvidia_smi_has_its_gpu() -> None:
    facts = gpus(HEADER + ORIN, tree=board("tegra234", "/dev/nvhost-gpu"))
    assert (facts.sms, facts.driver, facts.warnings) == (("8.7",), "540.4.0", ())
    assert facts.gpus[0].name == "Orin (nvgpu)"


def test_a_jetsons_nvidia_smi_is_read() -> None:
    row = "0, NVIDIA Thor, 11.0, 580.00, [N/A], GPU-0\n"
    facts = gpus(HEADER + row, tree=board("tegra264", "/dev/nvidiactl"))
    assert (facts.sms, facts.warnings) == (("11.0",), ())


def test_a_jetson_with_a_second_gpu_has_both() -> None:
    row = "1, NVIDIA RTX A6000, [N/A], 540.4.0, 49140 MiB, GPU-1\n"
    tree = board("tegra234", "/dev/nvhost-gpu")
    facts = gpus(HEADER + ORIN + row, lspci("2230"), tree)
    assert [gpu.sm for gpu in facts.gpus] == ["8.7", "8.6"]
    assert facts.sms == ("8.6", "8.7")


def test_a_jetsons_second_gpu_without_a_driver_is_a_warning() -> None:
    facts = gpus(None, lspci("2230"), board("tegra234", "/dev/nvhost-gpu"))
    assert (facts.sms, len(facts.gpus)) == (("8.7",), 2)
    assert facts.warnings[0].endswith("[10de:2230] has no working driver, so it is not used.")


def test_a_jetson_without_its_driver_has_no_gpu() -> None:
    facts = gpus(tree=board("tegra234"))
    assert (facts.sms, facts.gpus[0].sm) == ((), None)
    assert facts.warnings == (
        (
            "The GPU of NVIDIA Jetson AGX Orin Developer Kit has no working driver, so this is a "
            "CPU node."
        ),
    )


@pytest.mark.parametrize(
    "tree",
    [
        "model: Raspberry Pi 5\ncompatible: raspberrypi,5-model-b\ncompatible: brcm,bcm2712\n",
        board("tegra20", "/dev/nvhost-gpu"),
        "compatible: other,tegra234\n",
        "tegra234\n",
    ],
)
def test_other_boards_have_no_gpu(tree: str) -> None:
    facts = gpus(tree=tree)
    assert (facts.sms, facts.gpus, facts.warnings) == ((), (), ())


def test_a_board_without_a_name_is_called_by_its_chip() -> None:
    facts = gpus(tree="compatible: nvidia,tegra194\ndevice: /dev/nvhost-gpu\n")
    assert facts.gpus[0].name == "nvidia,tegra194"


A100 = "NVIDIA A100-SXM4-80GB"
SPLIT = (
    f"index, name, mig.mode.current\n0, {A100}, Enabled\n1, {A100}, Disabled\n"
    f"GPU 0: {A100} (UUID: GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16)\n"
    "  MIG 3g.40gb     Device  0: (UUID: MIG-feb88891-0321-5fef-9c87-d4af3b54259e)\n"
    "  MIG 1g.10gb     Device  1: (UUID: MIG-a25704ba-3a06-5299-a795-fd7cf4d13973)\n"
    "  MIG 1g.10gb     Device  2: (UUID: MIG-50f1c4c9-1508-5e8d-bb06-d08145b22e01)\n"
    f"GPU 1: {A100} (UUID: GPU-36c795f2-5cf7-55d6-af30-e535e79b7bb6)\n"
)
A100S = f"0, {A100}, 8.0, 535.216.01, 81920 MiB, GPU-7\n1, {A100}, 8.0, 535.216.01, 81920 MiB, G\n"


def test_a_gpu_that_mig_splits_keeps_its_sm() -> None:
    facts = gpus(HEADER + A100S, lspci("20b2", "20b2"), mig=SPLIT)
    assert [gpu.sm for gpu in facts.gpus] == ["8.0", "8.0"]
    assert facts.warnings == (
        (
            "GPU 0 (NVIDIA A100-SXM4-80GB) is split by MIG into 2 x 1g.10gb, 1 x 3g.40gb: a "
            "program sees one of them at a time."
        ),
    )


def test_mig_without_an_instance_is_a_warning() -> None:
    mig = "".join(line for line in SPLIT.splitlines(True) if "Device" not in line)
    (warning,) = gpus(HEADER + A100S, mig=mig).warnings
    assert warning.startswith("GPU 0 (NVIDIA A100-SXM4-80GB) has MIG enabled but no instance")


def test_disabled_mig_gives_no_warning() -> None:
    mig = f"index, name, mig.mode.current\n0, {A100}, Disabled\nGPU 0: {A100} (UUID: GPU-0)\n"
    assert gpus(HEADER + A100S, mig=mig).warnings == ()
    assert gpus(HEADER + A100S, mig="Failed to initialize NVML\n").warnings == ()


AMD = (
    "0000:05:00.0 Processing accelerators [1200]: Advanced Micro Devices, Inc. [AMD/ATI] "
    "Aqua Vanjaram [Instinct MI300X] [1002:74a1]\n"
)
INTEL = "0000:06:00.0 VGA compatible controller [0300]: Intel Corporation Device [8086:56a0]\n"


def test_nodes_with_gpus_of_amd_or_intel_are_cpu_nodes_with_a_warning() -> None:
    facts = gpus(pci=AMD + AMD.replace("05", "07") + INTEL)
    assert facts.sms == ()
    assert [gpu.name for gpu in facts.gpus] == [
        *["AMD Aqua Vanjaram [Instinct MI300X]"] * 2,
        "Intel DG2 [Arc A770]",
    ]
    assert facts.warnings == (
        (
            "Nothing is built for the GPU AMD Aqua Vanjaram [Instinct MI300X]: ROCm is not "
            "supported, only NVIDIA's CUDA, so this is a CPU node."
        ),
        (
            "Nothing is built for the GPU Intel DG2 [Arc A770]: XPU is not supported, only "
            "NVIDIA's CUDA, so this is a CPU node."
        ),
    )


@pytest.mark.parametrize(
    ("version", "name"),
    [("90402", "gfx942"), ("90010", "gfx90a"), ("110000", "gfx1100"), ("110501", "gfx1151")],
)
def test_a_gpu_of_amd_with_a_driver_has_its_gfx_name(version: str, name: str) -> None:
    """MI300X, MI250, RX 7900 and Strix Halo, by their PCI slot."""
    text = AMD + AMD.replace("05:", "c1:").replace("74a1", "ffff")
    kfd = f"0 1280 {version}\nnonsense\n0 1 2 3\n"
    cpu = {"uname": "Linux 6 x86_64", "cpuinfo": "flags: lm"}
    facts = facts_of({**cpu, "lspci": text, "kfd": kfd})
    assert [(gpu.vendor, gpu.gfx) for gpu in facts.gpus] == [("amd", name), ("amd", None)]
    assert f"Instinct MI300X] ({name}): ROCm is not" in facts.warnings[0]
    assert "(gfx" not in facts.warnings[1]


def test_a_gpu_of_intel_beside_one_of_nvidia_changes_nothing_for_it() -> None:
    facts = gpus(OLD + "0, Tesla K40c, 470.256.02, 11441 MiB, GPU-0\n", INTEL + lspci("1024"))
    assert facts.sms == ("3.5",)
    assert [warning.endswith("only NVIDIA's CUDA.") for warning in facts.warnings] == [True]


@pytest.mark.parametrize(
    "line",
    [
        INTEL.replace("[0300]", "[1200]"),  # an NPU
        AMD.replace("[1200]", "[0403]"),  # sound
        INTEL.replace("8086", "1a03"),  # a server's console
    ],
)
def test_other_pci_devices_give_no_warning(line: str) -> None:
    facts = gpus(pci=line)
    assert (facts.gpus, facts.warnings) == ((), ())


def test_an_unknown_pci_id_is_shown() -> None:
    assert gpus(pci=INTEL.replace("56a0", "3e92")).gpus[0].name == "Intel GPU [8086:3e92]"
