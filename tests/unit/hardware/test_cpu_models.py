"""CPU models, beside archspec's."""

import pytest
from archspec.cpu import TARGETS

from fleetbuild.hardware.cpu_models import CPU_MODELS, find_cpu_model
from fleetbuild.hardware.rungs import RUNGS, best

PEERS = {
    "Nehalem": "nehalem", "Westmere": "westmere", "SandyBridge": "sandybridge",
    "IvyBridge": "ivybridge", "Haswell": "haswell", "Broadwell": "broadwell",
    "Skylake-Client": "skylake", "Skylake-Server": "skylake_avx512",
    "Cascadelake-Server": "cascadelake", "Opteron_G4": "bulldozer", "EPYC": "zen",
    "EPYC-Rome": "zen2", "EPYC-Milan": "zen3", "cortex-a72": "cortex_a72",
    "neoverse-n1": "neoverse_n1", "neoverse-v1": "neoverse_v1", "neoverse-v2": "neoverse_v2",
    "neoverse-n2": "neoverse_n2", "olympus": "olympus", "EPYC-Genoa": "zen4", "EPYC-Turin": "zen5",
    "Zen6": "zen6", "AlderLake": "alderlake", "ArrowLake": "arrowlake", "Cannonlake": "cannonlake",
    "Steamroller": "steamroller", "Excavator": "excavator",
}  # fmt: skip
THAT_MATTER = frozenset().union(*(rung.features for rung in RUNGS.values()))


@pytest.mark.parametrize("name", PEERS)
def test_a_model_has_the_features_that_archspec_says(name):
    peers = {"sse3": "pni"}
    known = {peers.get(feature, feature) for feature in TARGETS[PEERS[name]].features}
    ours = CPU_MODELS[name].features
    unsaid = {"abm", "lahf_lm", "movbe", "cx16"}  # archspec leaves some of them out
    assert (known & THAT_MATTER) - unsaid == (ours & THAT_MATTER) - unsaid


@pytest.mark.parametrize(
    ("name", "rung"),
    [
        ("Conroe", "x86-64"), ("Nehalem", "x86-64-v2"), ("SandyBridge", "avx"),
        ("IvyBridge", "avx"), ("Haswell", "avx2"), ("EPYC", "avx2"), ("Skylake-Server", "avx512"),
        ("Cascadelake-Server", "avx512vnni"), ("SapphireRapids", "amx"),
        ("EPYC-Genoa", "avx512bf16"),
        ("cortex-a72", "armv8"), ("Graviton2", "armv8.2"), ("Graviton3", "armv8.4sve"),
        ("Grace", "armv9"),
    ],
)  # fmt: skip
def test_a_model_reaches_its_rung(name, rung):
    model = find_cpu_model(name)
    assert best(model.features, model.arch).name == rung


def test_names_are_found_however_they_are_joined():
    for name in ("Skylake-Server", "skylake server", "SKYLAKE_SERVER", "skylakeserver"):
        assert find_cpu_model(name).name == "Skylake-Server"
    assert find_cpu_model("Pentium 3") is None
    assert find_cpu_model("ampere1").features >= {"bf16", "i8mm"}  # archspec's
