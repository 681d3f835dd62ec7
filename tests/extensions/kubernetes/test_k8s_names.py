import re

from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.extensions.kubernetes.manifests.names import (
    dns_label,
    is_label_value,
    is_subdomain,
    label_value,
)

# The API's own expressions (apimachinery/pkg/util/validation).
VALUE = re.compile(r"(?:[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)\Z")
DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")


def test_a_version_stays_readable_as_a_label():
    assert label_value("0.8.0+cpu.avx2") == "0.8.0_cpu.avx2"
    assert label_value("2.13.0") == "2.13.0"
    assert label_value("sm80.sm86-avx2-cp311") == "sm80.sm86-avx2-cp311"


def test_a_long_name_ends_in_a_hash():
    value = label_value("1.0+" + "sm80." * 20 + "avx2")
    assert value.startswith("1.0_sm80.sm80.")
    assert len(value) <= 63
    assert value != label_value("1.0+" + "sm80." * 21 + "avx2")


def test_a_groups_name_becomes_an_object_name():
    assert dns_label("sm80.sm86-avx2-cp311") == "sm80-sm86-avx2-cp311"
    assert dns_label("Staging") != dns_label("staging")
    assert dns_label("---") != dns_label("--")


def test_node_names_are_checked():
    assert is_subdomain("node-1.rack.example")
    for bad in ("", "Node", "node_1", "-a", "a-", "a..b", "a" * 64, "é", "a\n", "a." * 130 + "a"):
        assert not is_subdomain(bad), bad


@given(st.text(), st.text())
def test_any_two_texts_become_different_label_values(one, other):
    value = label_value(one)
    assert len(value) <= 63
    assert VALUE.match(value)
    assert is_label_value(value)
    assert one == other or label_value(one) != label_value(other)


@given(st.text(), st.integers(10, 63))
def test_any_text_becomes_a_dns_label(text, limit):
    assert len(dns_label(text, limit)) <= limit
    assert DNS.match(dns_label(text, limit))
