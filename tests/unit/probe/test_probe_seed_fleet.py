"""One case per machine of the captured fleet."""

from __future__ import annotations

import pytest

from tests.factories.data import seed_fleet

EXPECTED = {
    "clx-a100-t4": ("avx512vnni", ("7.5", "8.0")),
    "clx-cpu": ("avx512vnni", ()),
    "e5v2-a": ("avx", ("8.6",)),
    "e5v2-b": ("avx", ("8.6",)),
    "g2": ("armv8.2", ()),
    "g3": ("armv8.4sve", ()),
    "hsw-3090": ("avx2", ("8.6",)),
    "hsw-k40": ("avx2", ("3.5",)),
    "hsw-nodriver": ("avx2", ()),
    "skx-h100": ("avx512", ("9.0",)),
    "skx-t4": ("avx512", ("7.5",)),
    "zen3-a40": ("avx2", ("8.6",)),
    "zen3-l40s": ("avx2", ("8.9",)),
}


@pytest.mark.parametrize("node", EXPECTED)
def test_each_captured_node_has_its_rung_and_sms(node: str) -> None:
    facts = seed_fleet()[node]
    assert (facts.state, facts.isa, facts.sms) == ("ok", *EXPECTED[node])
    assert facts.hypervisor_masked == ()
    assert bool(facts.warnings) == (node == "hsw-nodriver")
    assert facts.libc is not None
    assert facts.pythons
    assert facts.cpus
    assert facts.memory_gb
    assert facts.disk_gb == 400.0
    assert "gcc" in facts.toolchain
