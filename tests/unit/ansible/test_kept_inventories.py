"""An inventory is read by Ansible again as soon as anything that decides it may have changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fleetbuild
from fleetbuild.ansible import Listing, Secrets, kept_inventories, read_once

_CACHE = kept_inventories.own_cache  # conftest.py replaces it for all tests
Count = Callable[..., int]
HOSTS = {"h1": {"ansible_host": "192.0.2.1"}}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("fleetbuild.ansible.kept_inventories.own_cache", _CACHE)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "all.yml").write_text("rack: 4\n")
    (tmp_path / "hosts.yml").write_text("all: {hosts: {h1: {ansible_host: 192.0.2.1}}}\n")
    return tmp_path


@pytest.fixture
def readings(place: Path) -> Count:  # noqa: ARG001 (the folder to read in)
    """Reads hosts.yml twice more; returns how often that asked Ansible."""

    def count(source: str = "hosts.yml", limit: str | None = None, **given: Any) -> int:
        hosts = given.get("hosts", HOSTS)
        wanted = Listing(hosts, dict.fromkeys(hosts, ("rack4",)), {}, ("Careful.",))
        asked: list[str] = []

        def read() -> Listing:
            asked.append(source)
            return wanted

        for _ in range(2):
            found = read_once(source, limit, given.get("secrets", Secrets()), read)
            assert found == wanted
        return len(asked)

    return count


def test_the_same_files_are_read_once(readings: Count, place: Path) -> None:
    assert readings() == 1
    assert readings() == 0
    assert readings(limit="h1") == 1  # a question of its own
    assert readings("h1,h2,") == 1  # a list of hosts has no files
    (kept, *_) = (place / "cache" / "fleetbuild" / "inventories").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("hosts.yml", "all: {hosts: {h1: {ansible_host: 192.0.2.2}}}\n"),
        ("group_vars/all.yml", "rack: 5\n"),
        ("group_vars/rack4/more.yml", "ansible_user: ops\n"),
        ("host_vars/h1.yml", "ansible_user: ops\n"),
    ],
)
def test_a_change_is_read(readings: Count, place: Path, file: str, text: str) -> None:
    assert readings() == 1
    (place / file).parent.mkdir(exist_ok=True)
    (place / file).write_text(text)
    assert readings() == 1


def test_where_ansible_has_settings_nothing_is_kept(
    readings: Count, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert readings() == 1
    (place / "ansible.cfg").write_text("[defaults]\nremote_user = ops\n")
    assert readings() == 2
    (place / "ansible.cfg").unlink()
    assert readings() == 0
    monkeypatch.setenv("ANSIBLE_REMOTE_USER", "ops")
    assert readings() == 2


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("hosts.yml", "#!/bin/sh\necho '{}'\n"),
        ("hosts.yml", "plugin: amazon.aws.aws_ec2\nregions: [eu-west-1]\n"),
        ("hosts.yml", '{"plugin": "constructed"}\n'),
        ("hosts.yml", "{strict: true, plugin: ansible.builtin.constructed}\n"),
        ("group_vars/all.yml", "ansible_user: \"{{ lookup('env', 'USER') }}\"\n"),
        ("group_vars/all.yml", "ansible_user: '{% if true %}a{% endif %}'\n"),
        ("group_vars/all.yml", "secret: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  00\n"),
        ("home/.ansible/plugins/vars/site.py", "class VarsModule: pass\n"),
    ],
)
def test_what_ansible_works_out_is_never_kept(
    readings: Count, place: Path, file: str, text: str
) -> None:
    (place / file).parent.mkdir(parents=True, exist_ok=True)
    (place / file).write_text(text)
    assert readings() == 2


def test_an_executable_file_is_never_kept(readings: Count, place: Path) -> None:
    (place / "hosts.yml").chmod(0o755)
    assert readings() == 2


@pytest.mark.parametrize(
    "given",
    [
        {"limit": "@retry"},
        {"limit": "h9,@retry"},
        {"hosts": {"h1": {"ansible_ssh_private_key": "x"}}},
        {"hosts": {"h1": {"db_pw": "x"}}},
        {"hosts": {"h1": {"index": ["https://me:x@pypi.example.com/simple"]}}},
        {"hosts": {"h1": {"ansible_password": "x"}}},
        {"hosts": {"h1": {"site": [{"api_key": "x"}]}}},
        {"secrets": Secrets(vault_password_files=("vault",))},
    ],
    ids=str,
)
def test_passwords_and_other_sources_are_never_kept(
    readings: Count, place: Path, given: dict[str, Any]
) -> None:
    assert readings(**given) == 2
    assert not list(place.glob("cache/fleetbuild/inventories/*"))


def test_names_of_hosts_and_paths_of_keys_do_not_count_as_secrets(readings: Count) -> None:
    key = {"ansible_ssh_private_key_file": "~/.ssh/id_ed25519"}
    assert readings(hosts={"compass-1": key}) == 1


def test_hidden_and_large_files_of_a_folder_are_not_read(readings: Count, place: Path) -> None:
    folder = place / "inventory"
    (folder / ".fleetbuild").mkdir(parents=True)
    (folder / "hosts.yml").write_text("all: {hosts: {h1: {}}}\n")
    (folder / ".fleetbuild" / "plan.json").write_text("{}")
    assert readings("inventory") == 1
    (folder / ".fleetbuild" / "plan.json").write_text('{"another": 1}')
    assert readings("inventory") == 0
    with (folder / "wheel.whl").open("wb") as file:
        file.truncate(1 << 40)  # a terabyte, if it were read
    assert readings("inventory") == 2


def test_a_reference_to_another_variable_is_kept(readings: Count, place: Path) -> None:
    (place / "group_vars" / "all.yml").write_text("ansible_host: '{{ address }}'\n")
    assert readings() == 1


@pytest.mark.parametrize("text", ["", "null", "[]", '{"key": 1}', '{"key": "', "{}", "[" * 9999])
def test_a_damaged_record_is_read_again(readings: Count, place: Path, text: str) -> None:
    assert readings() == 1
    (kept,) = place.glob("cache/fleetbuild/inventories/*.json")
    kept.write_text(text)
    assert readings() == 1
    record = json.loads(kept.read_text())
    kept.write_text(json.dumps({**record, "listing": None}))
    assert readings() == 1


@pytest.fixture
def folder(readings: Count, place: Path) -> Path:
    """The folder of records, with one."""
    assert readings() == 1
    assert readings() == 0
    return place / "cache" / "fleetbuild" / "inventories"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_records_in_a_folder_of_another_user_are_not_used(readings: Count, folder: Path) -> None:
    os.chown(folder, 65534, 65534)
    assert readings() == 2


def test_records_in_a_folder_that_others_can_write_are_not_used(
    readings: Count, folder: Path
) -> None:
    folder.chmod(0o777)
    (kept,) = folder.iterdir()
    kept.unlink()
    os.mkfifo(kept)  # whoever reads it waits for its writer
    assert readings() == 2


def test_a_link_in_place_of_the_folder_leads_to_no_files_that_are_removed(
    readings: Count, folder: Path
) -> None:
    old = folder.rename(folder.with_name("project")) / "package.json"
    old.touch()
    os.utime(old, (0, 0))
    before = sorted(old.parent.iterdir())
    folder.symlink_to(old.parent)
    assert readings(limit="h1") == 2
    assert sorted(old.parent.iterdir()) == before


def test_a_cache_that_cannot_be_written_costs_time_only(readings: Count, place: Path) -> None:
    (place / "cache").write_text("a file")
    assert readings() == 2


def test_the_second_reading_starts_no_ansible(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = place / "hosts.yml"
    source.write_text(
        "all: {hosts: {h1: {ansible_host: '{{ address }}', address: 192.0.2.7, rack: 4}}}\n"
    )
    first = fleetbuild.read_inventory(source)
    monkeypatch.setattr("fleetbuild.ansible._runner.capture", None)
    monkeypatch.setattr("fleetbuild.ansible.listing.capture", None)
    monkeypatch.setattr("fleetbuild.ansible.rendering.capture", None)
    assert fleetbuild.read_inventory(source) == first
    assert first.nodes[0].login.host == "192.0.2.7"
