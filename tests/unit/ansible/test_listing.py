"""What Ansible refuses in an inventory keeps its words, and no message holds a value."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path

import pytest

from fleetbuild.ansible import listing
from fleetbuild.ansible._runner import Finished
from fleetbuild.ansible.messages import without_values
from fleetbuild.errors import InventoryError
from fleetbuild.probe.inventory import read_inventory

SECRET = "hunter2"


_OLD = "Syntax Error while loading YAML"  # what ansible-core 2.18 says of all of them


def refused(source: Path) -> str:
    with pytest.raises(InventoryError) as caught:
        read_inventory(str(source))
    assert caught.value.exit_code == 2
    assert caught.value.fix
    assert SECRET not in caught.value.message + caught.value.fix
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("hosts", f"n1 ansible_password={SECRET} {SECRET}\n", "Expected key=value host variable"),
        ("hosts", f"n1 ansible_password='{SECRET} x\n", "No closing quotation"),
        ("hosts", f"[gpu:vars]\nansible_password {SECRET}\n", "Expected key=value"),
        ("hosts", f"[all:children]\npassword={SECRET}\n", "undefined group"),
        ("hosts", f"[my gpu]\nn1 a={SECRET}\n[gpu password={SECRET}]", "Invalid section entry"),
        ("hosts", f"ansible_password={SECRET}\nn1\n", "'ansible_password' stands where the name"),
        ("requirements.txt", "numpy>=1.26\n", "it lists packages"),
        ("hosts", "{}", "'{}' stands where the name of a host"),
        ("hosts", b"\xff\xfen\x001\x00", "stands where the name of a host"),
        ("h.yml", "all:\n\thosts:\n", ("inventory: line 2, column 1: ", _OLD)),
        (
            "h.yml",
            f"all:\n  hosts:\n    n1: {{p: *{SECRET}}}\n",
            ("line 3, column 11: YAML parsing", _OLD),
        ),
        ("h.yml", "all:\n  hosts:\n    - n1\n", 'Invalid "hosts" entry for "all" group'),
        ("h.yml", f"all:\n  hosts:\n    n1: {SECRET}\n", "expected dictionary"),
        ("h.yml", f"all: {{hosts: {{n1: {{x: !!int {SECRET}}}}}}}\n", "invalid literal for int()"),
        ("h.yml", f"all: {{hosts: {{n1: {{x: !{SECRET} y}}}}}}\n", ("YAML parsing failed", _OLD)),
        ("h.yml", "all: {host: {n1: }}\n", "h.yml names no hosts: Skipping unexpected key (host)"),
        ("h.yml", f"all: {SECRET}\n", "names no hosts: not a valid group definition"),
        ("h.yml", "plugin: absent.here.none\n", "unknown plugin 'absent.here.none'"),
        ("h.yml", "---\n", "Parsed empty YAML file"),
        ("h.json", "{}", "'{}' stands where the name of a host"),
        ("h.yml", "", "names no hosts"),
    ],
)
def test_a_broken_inventory_is_refused_in_ansibles_words_without_values(
    tmp_path: Path, name: str, content: str | bytes, words: str | tuple[str, ...]
) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    message = refused(tmp_path / name)
    assert any(each in message for each in ((words,) if isinstance(words, str) else words))


@pytest.mark.parametrize("content", [f"password: *{SECRET}\n", "- a\n", f"{SECRET}\n"])
def test_a_broken_file_of_variables_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "hosts").write_text("[gpu]\nn1\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "gpu.yml").write_text(content)
    for source in (tmp_path, tmp_path / "hosts"):
        assert "or a file of its variables, cannot be read" in refused(source)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (f"Expected key=value, got: {SECRET}\n{SECRET}", "Expected key=value"),
        (
            f"Error parsing host definition 'n1 a={SECRET}': No closing quotation",
            "No closing quotation",
        ),
        (f"YAML parsing failed: '{SECRET}'", "YAML parsing failed"),
        (f"found undefined alias '{SECRET}'", "Ansible says more"),
        (f"/etc/a b:2: Section [web:{SECRET}] has unknown type: {SECRET}", "has unknown type"),
        ("/h:2: Section [a:children] includes undefined group: b", "line 2: Section [a:children]"),
        (f"Section [a:vars] not valid for undefined group '{SECRET}'", "for undefined group"),
        (f"could not convert string to float: '{SECRET}'", "could not convert string to float"),
        (f"inventory config '/x' specifies unknown plugin '{SECRET}'", "unknown plugin"),
    ],
)
def test_ansibles_own_reason_loses_what_it_quotes(reason: str, shown: str) -> None:
    assert shown in without_values(reason)
    assert SECRET not in without_values(reason)


@pytest.mark.parametrize("name", ["deep/pipe", "hosts"])
def test_a_pipe_that_ansible_would_wait_for_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "hosts").write_text("n1\n")
    for folder in ("deep", "group_vars"):
        (tmp_path / folder).mkdir()
        os.mkfifo(tmp_path / folder / "pipe")
    source = tmp_path / name
    assert "is a pipe" in refused(source if source.is_file() else tmp_path)


def test_a_broken_file_of_a_folder_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(f"[gpu:vars]\nansible_password {SECRET}\n")
    (tmp_path / "b").write_text("n1\n")
    (warning,) = read_inventory(str(tmp_path)).warnings
    assert f"Some hosts may be missing. {tmp_path}/a" in warning
    assert "Expected key=value" in warning
    assert SECRET not in warning
    (tmp_path / "b").unlink()
    message = refused(tmp_path)
    assert message.startswith(f"{tmp_path}/a")
    assert "Expected key=value" in message


def test_messages_that_older_releases_of_ansible_fold_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "folder" / "a"
    broken.parent.mkdir(parents=True)
    broken.write_text("[gpu:children]\nold\n[all]\nn1\n")
    yaml, ini = (f" * Failed to parse {broken} with {kind} plugin: " for kind in ("yaml", "ini"))
    said = [
        f"{yaml}Syntax Error.  The offending line appears to be:  n1 password=a {SECRET} ^ here",
        f"{ini}{broken}:2: Section [gpu:children] includes undefined group: old",
        f"Unable to parse {broken} as an inventory source",
    ]
    folded = "".join("\n".join(textwrap.wrap(f"[WARNING]: {text}", 79)) + "\n" for text in said)
    answers = [
        Finished(0, '{"all": {"hosts": ["n1"]}}', folded),
        Finished(1, "", folded + "ERROR! No inventory was parsed.\n"),
    ]
    monkeypatch.setattr(listing, "_run", lambda *_: answers.pop(0))
    (warning,) = listing.list_inventory(str(broken.parent)).warnings
    where = "line 2: Section [gpu:children] includes undefined group"
    assert warning == f"Some hosts may be missing. {broken}: {where}. Correct it."
    with pytest.raises(InventoryError, match=re.escape(where)):
        listing.list_inventory(str(broken))


def test_a_pipe_and_a_device_are_refused_before_ansible_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.delattr(listing, "_run")
    for source in (tmp_path / "pipe", Path("/dev/zero")):
        assert "is neither a file nor a directory" in refused(source)


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
