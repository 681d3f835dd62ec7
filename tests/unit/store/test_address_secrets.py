"""Logins in addresses are removed from any text, in a time that grows as its length."""

from __future__ import annotations

import time

import pytest

from fleetbuild.store.address_secrets import without_login


@pytest.mark.parametrize(
    "text",
    [
        "a://" * 40_000,
        "a://" * 40_000 + "@",
        "a://b:c" * 40_000,
        "a://b:c" * 20_000 + "@" + "a://b:c" * 20_000,
        "x" * 200_000 + "@",
        "@" * 200_000,
        "a://b:" + "1" * 200_000,
    ],
    ids=["schemes", "an end", "ports", "in the middle", "a word", "ats", "a long port"],
)
def test_a_text_of_a_server_is_read_in_linear_time(text: str) -> None:
    began = time.process_time()
    without_login(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("https://u:p@h/x", "https://h/x"),
        ("https://u:p/w@h/x and https://h:80/y", "https://h/x and https://h:80/y"),
        ("https://u:p@ss@host/simple", "https://host/simple"),
        ("https://token@host/x", "https://host/x"),
        ("https://h/a@b", "https://h/a@b"),
        ("https://[::1]:80/a@b", "https://[::1]:80/a@b"),
        ("git+https://host/repo@v1.0", "git+https://host/repo@v1.0"),
        ("git+ssh://git@h/x.git@v1", "git+ssh://h/x.git@v1"),
        ("mail a@b.c", "mail a@b.c"),
        ("https://u:a@b@h\thttps://v:w@i", "https://h\thttps://i"),
    ],
)
def test_only_logins_are_removed(text: str, left: str) -> None:
    assert without_login(text) == left
