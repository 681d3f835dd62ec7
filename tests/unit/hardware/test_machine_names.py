"""Names of machines as people type them, and as lscpu and nvidia-smi print them."""

import re

import pytest

from fleetbuild.hardware.cpu_models import CPU_MODELS, find_cpu_model
from fleetbuild.hardware.data import load
from fleetbuild.hardware.gpus import SMS
from fleetbuild.hardware.machine_names import read_machine_name, similar_names

ROWS = load("machine_names.yml")["rows"]
CPUS = {
    "x86-64-v3": "avx2", "x86_64_v4": "avx512", "AVX": "avx", "zen3": "EPYC-Milan",
    "zen 4": "EPYC-Genoa", "znver4": "EPYC-Genoa", "GraniteRapids": "GraniteRapids",
    "EPYC-Turin": "EPYC-Turin", "Graviton5": "neoverse-v3", "neoverse-n2": "neoverse-n2",
    "neoverse_v3ae": "neoverse_v3ae", "N100": "AlderLake", "Vera": "olympus", "K10": "Opteron_G3",
    "skylake avx512": "Skylake-Server", "i7-8700K": "Skylake-Client", "Ryzen 5950X": "EPYC-Milan",
    "Ryzen 7 5700U": "EPYC-Rome", "Ryzen 5 3400G": "EPYC", "Xeon E5-2650 v2": "IvyBridge",
    "e5 2650 V2": "IvyBridge", "E5-2670": "SandyBridge",
    "Intel(R) Xeon(R) CPU E5-2650 v2 @ 2.60GHz": "IvyBridge",
    "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz": "Cascadelake-Server",
    "Intel(R) Xeon(R) Gold 5318H CPU @ 2.50GHz": "Cooperlake",
    "11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz": "TigerLake", "i9-9900K": "Skylake-Client",
    "i9-9900X": "Skylake-Server", "Intel(R) Core(TM)2 Quad CPU Q6600 @ 2.40GHz": "Conroe",
    "AMD EPYC 7763 64-Core Processor": "EPYC-Milan", "AMD EPYC 9R14": "EPYC-Genoa",
    "AMD Ryzen 7 5800H with Radeon Graphics": "EPYC-Milan",
    "AMD Opteron(tm) Processor 6276": "Opteron_G4",
}  # fmt: skip
GPUS = {
    "8.6": "8.6", "sm_86": "8.6", "sm61": "6.1", "SM 9.0": "9.0", "compute_120": "12.0",
    "sm10": "1.0", "V100": "7.0", "rtx3060": "8.6", "RTX 3060": "8.6",
    "GeForce RTX 3060 Laptop GPU": "8.6", "Tesla V100-SXM2-16GB": "7.0",
    "NVIDIA A100-SXM4-80GB": "8.0", "NVIDIA H100 80GB HBM3": "9.0",
    "NVIDIA RTX 6000 Ada Generation": "8.9", "Quadro RTX 6000": "7.5", "RTX 2050": "8.6",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "12.0", "GTX 1080 Ti": "6.1",
    "Tesla K10": "3.0",
}  # fmt: skip


@pytest.mark.parametrize(("name", "model"), CPUS.items())
def test_a_cpu_is_read_by_its_name(name, model):
    machine = read_machine_name(name)
    assert machine.read_as.split(" (")[0] == model
    if known := find_cpu_model(model):
        assert machine.features == known.features
    assert machine.sm is None


@pytest.mark.parametrize(("name", "sm"), GPUS.items())
def test_a_gpu_is_read_by_its_name_or_its_sm(name, sm):
    machine = read_machine_name(name)
    assert (machine.sm, machine.arch) == (sm, None)


def test_a_board_is_a_cpu_with_a_gpu():
    machine = read_machine_name("GB10")
    assert (machine.arch, machine.sm) == ("aarch64", "12.1")
    assert {"sve2", "bf16"} <= machine.features


def test_the_reading_says_the_level_and_the_features_beyond_it():
    assert read_machine_name("Xeon E5-2650 v2").read_as == "IvyBridge (x86-64-v2 + avx, f16c)"
    assert read_machine_name("zen3").read_as == "EPYC-Milan (x86-64-v3)"
    assert read_machine_name("V100").read_as == "SM 7.0 (Volta)"


@pytest.mark.parametrize(
    "name",
    ["RTX 6000", "i3-2100", "Pentium G4400", "86", "120", "Snapdragon X", "", "-", "x" * 9000],
)
def test_a_name_of_several_machines_or_of_none_is_not_read(name):
    assert read_machine_name(name) is None


def test_similar_names_are_found():
    assert similar_names("Hasswell", ())[0] == "Haswell"
    assert "RTX 6000 Ada" in similar_names("RTX 6000", ())
    assert similar_names("node-17", ["node-18"])[0] == "node-18"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["names"][0])
def test_each_row_is_the_first_for_its_examples_and_names_known_hardware(row):
    assert row.get("sm", "9.0") in SMS
    for name in row["names"]:
        machine = read_machine_name(name)
        assert machine.sm == row.get("sm")
        if "cpu" in row:
            assert machine.features == find_cpu_model(row["cpu"]).features


def test_no_name_of_a_cpu_stands_for_two():
    names = [
        re.sub(r"[\s_-]", "", name.casefold())
        for model in CPU_MODELS.values()
        for name in {model.name, *model.aliases}
    ]
    assert sorted(names) == sorted(set(names))
