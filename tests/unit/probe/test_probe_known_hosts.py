"""Known hosts: fleetbuild finds the keys that ssh-keygen finds, and quickly for a large fleet."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from fleetbuild.probe.transport.known_hosts import KnownHosts


def public(number: int) -> str:
    """Some host's key."""
    raw = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + hashlib.sha256(b"%d" % number).digest()
    return base64.b64encode(raw).decode()


def hashed(name: str) -> str:
    """As ssh-keygen -H writes it."""
    salt = hashlib.sha256(name.encode()).digest()[:20]
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


LINES = [
    "# a comment line",
    "",
    f"plain.lab,10.0.0.1 ssh-ed25519 {public(1)} a comment",
    f"  Upper.Lab\t ssh-ed25519 {public(2)}",
    f"[plain.lab]:2222 ssh-ed25519 {public(3)}",
    f"{hashed('hidden.lab')} ssh-ed25519 {public(4)}",
    f"{hashed('[hidden.lab]:2222')} ssh-ed25519 {public(5)}",
    f"plain.lab ssh-ed25519 {public(6)}",
    f"|1|damaged ssh-ed25519 {public(7)}",
    f"|1|!|! ssh-ed25519 {public(7)}",
    "damaged.lab ssh-ed25519 AAAA",
    "damaged.lab ssh-ed25519 A",
    "new.lab ssh-of-tomorrow AAAA",
    "short.lab ssh-ed25519",
]


def found(known: KnownHosts, name: str) -> dict[str, str]:
    return {kind: key.get_base64() for kind, key in known.keys_of(name).items()}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("plain.lab", 1),
        ("10.0.0.1", 1),
        ("upper.lab", 2),
        ("[plain.lab]:2222", 3),
        ("hidden.lab", 4),
        ("[hidden.lab]:2222", 5),
    ],
)
def test_the_first_key_of_a_kind_is_found(name: str, number: int, tmp_path: Path) -> None:
    assert found(KnownHosts(LINES), name) == {"ssh-ed25519": public(number)}
    if shutil.which("ssh-keygen"):
        (tmp_path / "known").write_text("\n".join(LINES) + "\n")
        asked = ["ssh-keygen", "-F", name, "-f", str(tmp_path / "known")]
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        assert public(number) in said.splitlines()[1]


@pytest.mark.parametrize(
    "name",
    ["other.lab", "damaged.lab", "new.lab", "short.lab", "", "|1|damaged", LINES[5].split()[0]],
)
def test_a_host_that_no_line_names_has_no_key(name: str) -> None:
    known = KnownHosts(LINES)
    assert not known.keys_of(name)
    assert not known.beyond


@pytest.mark.parametrize("names", ["@revoked a.lab", "  @cert-authority *", "a.lab,!a.lab"])
def test_patterns_and_markers_are_left_to_openssh(names: str) -> None:
    assert KnownHosts([f"{names} ssh-ed25519 {public(1)}"]).beyond


def test_a_line_with_a_pattern_is_left_to_openssh() -> None:
    known = KnownHosts([f"*.lab,n?.lab ssh-ed25519 {public(1)}"])
    assert not known.keys_of("n1.lab")
    assert not known.beyond


def test_the_first_line_counts_however_it_names_the_host() -> None:
    lines = [
        f"{hashed('a')} ssh-ed25519 {public(1)}",
        f"a ssh-ed25519 {public(2)}",
    ]
    assert found(KnownHosts(lines), "a") == {"ssh-ed25519": public(1)}
    assert found(KnownHosts(reversed(lines)), "a") == {"ssh-ed25519": public(2)}


def test_hashed_names_of_a_large_fleet_cost_little() -> None:
    known = KnownHosts(f"{hashed(f'n{n}')} ssh-ed25519 {public(n)}" for n in range(500))
    began = time.process_time()
    assert all(known.keys_of(f"n{number}") for number in range(100))
    took, began = time.process_time() - began, time.process_time()
    for number in range(100 * 500):
        hmac.digest(b"salt" * 5, b"n%d" % number, "sha1")
    # Little more than the hashes alone; ten times as much made nodes late.
    assert took < 5 * (time.process_time() - began)
