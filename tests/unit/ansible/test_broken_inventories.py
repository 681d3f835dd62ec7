"""The line of an inventory that Ansible refuses, and that no message holds a value."""

from __future__ import annotations

import os
import re
import socket
import textwrap
from pathlib import Path

import pytest

from fleetbuild.ansible import listing
from fleetbuild.ansible._runner import Finished
from fleetbuild.ansible.broken_inventories import Mistake, find_mistake, without_values
from fleetbuild.errors import InventoryError
from fleetbuild.probe.inventory import read_inventory

SECRET = "hunter2"


def found(tmp_path: Path, name: str, content: str | bytes, reason: str = "") -> Mistake | None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return find_mistake(path, reason)


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("[gpu\nn1\n", 1, "the section [gpu lacks its closing bracket"),
        ("[gpu] n1\n", 1, "more text follows the section [gpu]"),
        ("[my gpu]\nn1\n", 1, "[my gpu] is not a section"),
        ("n1\n[gpu:var]\nx=1\n", 2, "[gpu:var] is not a kind of section"),
        (f"[gpu]\nn1 ansible_host=1 ansible_password={SECRET} {SECRET} a={SECRET}\n", 2,
         "n1 ansible_host=… ansible_password=… and then a word"),
        (f"n1 ansible_password = {SECRET}\n", 1, "'ansible_password' behind the host n1"),
        (f"n1 ansible_password='{SECRET} x\n", 1, "the quotation mark in the line of n1"),
        (f"[gpu]\nansible_password={SECRET}\nn1\n", 2, "ansible_password=… is a variable where a"),
        (f"[gpu:vars]\nansible_password {SECRET}\n", 2, "ansible_password has no '='"),
        (f"[gpu:vars]\nsecret: {SECRET}\n", 2, "secret has no '='"),
        (f"[gpu:vars]\nkey=(\n{SECRET} {SECRET}\n)\n", 3, "this line has no '='"),
        (f"[all:children]\ngpu a={SECRET}\n[gpu]\nn1\n", 2, "'gpu' … is not the name of a group"),
        (f"[all:children]\npassword={SECRET}\n", 2, "'password' … is not the name of a group"),
        ("n1 n2\n", 1, "'n2' behind the host n1"),
        (f"ansible_password {SECRET}\n", 1, "a word behind the host ansible_password"),
        ("n[1:3\n", 1, "n[1:3 has a range without its closing bracket"),
        ("n[1]\n", 1, "n[1] has a range that is not [FIRST:LAST]"),
        ("n[a:zz]\n", 1, "neither of numbers nor of single letters"),
        ("n[01:100]\n", 1, "leading zeros"),
        ("n[3:1]\n", 1, "begins after its end"),
        ("n[1:3:0]\n", 1, "step"),
        ("n[1:3:²]\n", 1, "step"),
        (f"n[1:{'9' * 5000}]\n", 1, "neither of numbers"),
        (b"\x00\x01[gpu\n", 0, "binary"),
        ("n1:\n", 1, "n1: ends in a colon"),
        (b"\xef\xbb\xbf[gpu]\nn1\n", 1, "byte order mark"),
        (b"\xff\xfen\x001\x00", 0, "UTF-16"),
    ],
)  # fmt: skip
def test_the_broken_line_of_an_ini_inventory_is_named(
    tmp_path: Path, content: str | bytes, line: int, words: str
) -> None:
    mistake = found(tmp_path, "hosts.ini", content)
    assert mistake
    assert mistake.line == line
    assert words in mistake.what
    assert mistake.fix
    assert SECRET not in mistake.what + mistake.fix


def test_groups_that_no_section_declares_are_named_if_ansible_misses_them(tmp_path: Path) -> None:
    content = "[all:children]\nnope\n[gpu]\nn1\n"
    assert found(tmp_path, "hosts", content) is None  # another file of a folder may declare it
    mistake = found(tmp_path, "hosts", content, "includes undefined group 'nope'")
    assert mistake
    assert (mistake.line, "[all:children] names the group nope" in mistake.what) == (2, True)
    content = "[a:children]\nb\n[b:children]\nc\n[c:children]\na\n"
    mistake = found(tmp_path, "hosts", content, "creates a recursive dependency loop")
    assert mistake
    assert (mistake.line, "a is a child of c" in mistake.what) == (6, True)


@pytest.mark.parametrize(
    "line",
    ["n[1:3]:22 a=1", "[01:09].example.com", "[::1]:22", "n[a:f]", "n[01:10:3]x[1:2]",
     "10.0.0.[1:9]", "n1 a='x y' b=\"=\" # c", "fe80::1"],
)  # fmt: skip
def test_what_ansible_reads_is_not_a_mistake(tmp_path: Path, line: str) -> None:
    assert found(tmp_path, "hosts", f"; x\n[gpu]  # x\n{line}\n[gpu:vars]\n=x\na = b\n") is None


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("all:\n  hosts:\n    - n1\n", 2, "hosts: of the group all is a list"),
        ("all:\n  host:\n    n1:\n", 2, "host: is not expected directly below the group all"),
        ("all:\n  children:\n    gpu:\n      n1: {}\n", 4, "n1: is not expected directly below"),
        ("hosts:\n  n1:\n", 1, "hosts: stands in no group"),
        (f"all:\n  hosts:\n    n1: {SECRET}\n", 3, "the host n1 has a text where its variables"),
        ("all:\n  hosts:\n    1: {}\n", 3, "the host 1 is not a text"),
        ("all:\n  children:\n    1: {}\n", 3, "the group 1 is not a text"),
        (f"? {{{SECRET}: x}}\n: y\n", 1, "a name below children: is a mapping"),
        (f"plugin: [{SECRET}]\n", 1, "configures the inventory plugin NAME"),
        ("all:\n  hosts:\n    n[1:x]: {}\n", 3, "n[1:x] has a range"),
        ("all:\n  hosts:\n    ? [a]\n    : 1\n", 3, "a name below hosts: is a list"),
        (f"all:\n  hosts:\n    n1: {{password: *{SECRET}}}\n", 3, "not YAML: a value begins with"),
        (f"all:\n  hosts:\n    n1:\n      password: !{SECRET}\n", 4, "a value begins with '!'"),
        ("all:\n\thosts:\n", 2, "not YAML: found character"),
        ("plugin: amazon.aws.aws_ec2\n", 1, "configures the inventory plugin amazon.aws.aws_ec2"),
        (f"all: {SECRET}\n", 1, "the group all is a text"),
    ],
)
def test_the_broken_line_of_a_yaml_inventory_is_named(
    tmp_path: Path, content: str, line: int, words: str
) -> None:
    mistake = found(tmp_path, "hosts.yml", content)
    assert mistake
    assert mistake.line == line
    assert words in mistake.what
    assert mistake.fix
    assert SECRET not in mistake.what + mistake.fix


def test_a_group_that_contains_itself_by_an_anchor_ends_the_search(tmp_path: Path) -> None:
    assert found(tmp_path, "a.yml", "all: &all\n  children:\n    gpu: *all\n") is None


def test_anchors_that_lead_to_many_groups_and_deep_groups_end_the_search(tmp_path: Path) -> None:
    doubled = "".join(
        f"b{i}: &b{i} {{children: {{x: *b{i - 1}, y: *b{i - 1}}}}}\n" for i in range(1, 40)
    )
    assert (
        found(tmp_path, "a.yml", f"b0: &b0 {{vars: {{x: 1}}}}\n{doubled}all: {{vars: *b39}}\n")
        is None
    )
    deep = found(tmp_path, "a.yml", "".join(f"{' ' * depth}a:\n" for depth in range(2000)))
    assert deep == Mistake(0, "it is nested too deeply.", "Nest less.")


def test_nothing_is_said_of_encrypted_and_large_files(tmp_path: Path) -> None:
    assert found(tmp_path, "a.yml", "$ANSIBLE_VAULT;1.1;AES256\n[\n") is None
    assert found(tmp_path, "hosts", "[gpu\n".ljust(5 << 20)) is None


def test_a_broken_file_of_variables_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("[gpu]\nn1\n")
    broken = tmp_path / "group_vars" / "gpu.yml"
    broken.parent.mkdir()
    contents = (f"password: *{SECRET}\n", "- a\n", f"{SECRET}\n")
    for content, where in zip(
        contents, (", line 1, column 11", ", line 1", ", line 1"), strict=True
    ):
        broken.write_text(content)
        for source in (tmp_path, tmp_path / "hosts"):
            with pytest.raises(InventoryError, match=f"{broken}{where}: ") as caught:
                read_inventory(str(source))
            assert SECRET not in str(caught.value) + caught.value.fix


@pytest.mark.parametrize("value", ["2024-99-99", f"!!int {SECRET}", f"!!timestamp {SECRET}"])
def test_a_value_that_yaml_cannot_convert_is_an_error_of_the_inventory(
    tmp_path: Path, value: str
) -> None:
    (tmp_path / "hosts.yml").write_text(f"all: {{hosts: {{n1: {{x: {value}}}}}}}\n")
    with pytest.raises(InventoryError, match=r"hosts\.yml cannot be read") as caught:
        read_inventory(str(tmp_path / "hosts.yml"))
    assert SECRET not in str(caught.value) + caught.value.fix


def test_ansibles_own_reason_loses_what_it_quotes() -> None:
    assert without_values(f"Expected key=value, got: {SECRET}") == "Expected key=value, got: …"
    said = f"Error parsing host definition 'n1 a={SECRET}': No closing quotation"
    assert without_values(said) == "Error parsing host definition: No closing quotation"


def test_a_variable_in_the_place_of_a_host_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"[gpu]\nansible_password={SECRET}\nn1\n")
    for source in (tmp_path, tmp_path / "hosts"):
        with pytest.raises(InventoryError, match=r"ansible_password=… is a variable") as caught:
            read_inventory(str(source))
        assert SECRET not in str(caught.value) + caught.value.fix


def test_a_broken_file_of_a_folder_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f"[gpu:vars]\nansible_password {SECRET}\n")
    (tmp_path / "b").write_text("n1\n")
    (warning,) = read_inventory(str(tmp_path)).warnings
    assert f"Some hosts may be missing. {tmp_path}/a, line 2: ansible_password has no" in warning
    assert SECRET not in warning
    (tmp_path / "b").unlink()
    with pytest.raises(InventoryError, match=f"{tmp_path}/a, line 2: ansible_password has"):
        read_inventory(str(tmp_path))


@pytest.mark.parametrize("folder", ["a-folder-with-many-parts/and-a-name", "f" * 80, "a b"])
def test_messages_that_older_releases_of_ansible_fold_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    broken = tmp_path / folder / "a"
    broken.parent.mkdir(parents=True)
    broken.write_text("[gpu:children]\nold\n[all]\nn1\n")
    yaml, ini = (f" * Failed to parse {broken} with {each} plugin: " for each in ("yaml", "ini"))
    said = [
        f"{yaml}Syntax Error.  The offending line appears to be:  n1 password=a {SECRET} ^ here",
        f"{ini}{broken}:2: Section [gpu:children] includes undefined group: old",
        f"Unable to parse {broken} as an inventory source",
    ]
    folded = "".join("\n".join(textwrap.wrap(f"[WARNING]: {each}", 79)) + "\n" for each in said)
    answers = [
        Finished(0, '{"all": {"hosts": ["n1"]}}', folded),
        Finished(1, "", folded + "ERROR! No inventory was parsed.\n"),
    ]
    monkeypatch.setattr(listing, "_run", lambda *_, **__: answers.pop(0))
    (warning,) = listing.list_inventory(str(broken.parent)).warnings
    where = f"{broken}, line 2: [gpu:children] names the group old"
    assert warning.startswith(f"Some hosts may be missing. {where}")
    with pytest.raises(InventoryError, match=re.escape(where)):
        listing.list_inventory(str(broken))


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InventoryError, match=r"pipe is a pipe"):
        read_inventory(str(tmp_path / "pipe"))


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("/dev/zero", "/dev/zero is a device, not a file"),
        ("/dev", r"/dev contains /dev/\S+, which is a device"),
        ("/dev/stdin", "standard input, which Ansible cannot read twice"),
        ("/dev/fd/0", "standard input, which Ansible cannot read twice"),
    ],
)
def test_what_cannot_be_read_as_a_file_is_refused_before_ansible_starts(
    source: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(listing, "_run")
    with pytest.raises(InventoryError, match=what):
        listing.list_inventory(source)


def test_a_socket_is_refused_and_a_folder_with_one_is_not(tmp_path: Path) -> None:
    """Ansible passes over a socket in a folder."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
    (tmp_path / "hosts").write_text("n1\n")
    (tmp_path / "masked.yml").symlink_to(os.devnull)
    assert list(listing.list_inventory(str(tmp_path)).hosts) == ["n1"]
    with pytest.raises(InventoryError, match="s is a socket, not a file"):
        listing.list_inventory(str(tmp_path / "s"))


@pytest.mark.parametrize("source", [".", "hosts"])
def test_a_pipe_that_an_inventory_contains_is_named(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("n1\n")
    (tmp_path / "group_vars").mkdir()
    os.mkfifo(tmp_path / "group_vars" / "all")
    with pytest.raises(InventoryError, match="contains group_vars/all, which is a pipe"):
        listing.list_inventory(source)


def test_a_file_too_large_to_be_an_inventory_is_refused(tmp_path: Path) -> None:
    """Here it is a disk image."""
    with (tmp_path / "disk.img").open("wb") as image:
        image.truncate(300 << 20)
    with pytest.raises(InventoryError, match=r"disk.img has 300 MB"):
        listing.list_inventory(str(tmp_path / "disk.img"))


@pytest.mark.parametrize(
    ("mode", "what", "fix"),
    [
        (0o600, "looks like an inventory script but is not executable", "chmod \\+x"),
        (0o700, "is executable, .* and it printed no hosts", "--list"),
    ],
)
def test_a_script_without_hosts_has_an_error_of_its_own(
    mode: int, what: str, fix: str, tmp_path: Path
) -> None:
    """Its comments are comments of an INI file, too."""
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n# lists the hosts\n")
    script.chmod(mode)
    with pytest.raises(InventoryError, match=what) as error:
        listing.list_inventory(str(script))
    assert re.search(fix, error.value.fix)
