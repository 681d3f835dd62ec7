"""Modules without Ansible's own code on a node: the same arguments, errors and answers."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections import UserString
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ModuleArgumentSpecValidator

from tests.factories.role_modules import plugin

plain = plugin("module_utils.plain_module")
programs = plugin("plugin_utils.programs")
WHEEL = {"path": "a.whl", "file": "a.whl", "sha256": "0"}
GIVEN: list[tuple[str, dict[str, Any]]] = [
    ("release", {}),
    ("release", {"state": "begun", "counter": "7", "whole": "yes", "spec": {"keep": "3"}}),
    ("release", {"spec": {"path": "~/x/$HOME", "wheels": [{**WHEEL, "commands": "a, b"}]}}),
    ("release", {"spec": {"wheels": [WHEEL], "activate": "off", "manifest": '{"a": [1]}'}}),
    ("release", {"spec": {"release": 7, "revoked": "a==1", "in_use": {"a": "b"}}}),
    ("release", {"spec": None, "known_failures": [{"says": "x"}]}),
    ("release", {"state": "gone"}),
    ("release", {"counter": "many"}),
    ("release", {"counter": 1.5}),
    ("release", {"whole": "perhaps"}),
    ("release", {"colour": "red"}),
    ("release", {"spec": {"colour": "red"}}),
    ("release", {"spec": {"wheels": [{"path": "a.whl", "file": "a.whl"}]}}),
    ("release", {"spec": {"wheels": ["a.whl"]}}),
    ("release", {"spec": ["a"]}),
    ("release", {"spec": "{'path': '/x', 'keep': 3}"}),
    ("release", {"spec": " path='/a b', keep=3 release=c=d\n"}),
    ("release", {"spec": "{path: /x}"}),
    ("release", {"spec": "nothing"}),
    ("verify", {"spec": {"imports": "a,b", "timeout": 5, "files": 0}, "mark": "true"}),
    ("verify", {"spec": {"imports": [1, "b"], "checks": []}, "unmark": 1}),
    ("toolchain", {"python": "/usr/bin/python3", "packages": {}, "gccs": ["11"], "tools": "a"}),
    ("toolchain", {"python": "/usr/bin/python3"}),
    ("toolchain", {"python": "/usr/bin/python3", "packages": {}, "cache": "none"}),
    ("build", {"state": "built", "dir": "/x", "spec": {}}),
    ("build", {"state": "waited", "dir": "/x"}),
    ("toolchain", {"python": "/usr/bin/python3", "packages": {}, "libraries": {"a": "1"}}),
    ("build", {"state": "waited", "dir": "/x", "poll": "2"}),
]


MESSAGES = {
    "value of state must be one of: query, begun, present, active, previous, ended, absent,"
    " got: gone": {"state": "gone"},
    "argument 'counter' is of type str, and int is needed": {"counter": "many"},
    "missing required arguments: spec.wheels.sha256": {
        "spec": {"wheels": [{"path": "a", "file": "a"}]}
    },
}


class _Asked(Exception):
    pass


def asked(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what a module passes to AnsibleModule."""
    module = plugin(f"modules.{name}")

    def record(**given: Any) -> None:
        raise _Asked(given)

    monkeypatch.setattr(module, "AnsibleModule", record)
    with pytest.raises(_Asked) as found:
        module.main()
    return dict(found.value.args[0])


@pytest.mark.parametrize(("name", "given"), GIVEN)
def test_arguments_are_read_as_ansible_reads_them(name, given, monkeypatch, capsys):
    wanted = asked(name, monkeypatch)
    required_if = wanted.get("required_if", [])
    own = ModuleArgumentSpecValidator(wanted["argument_spec"], required_if=required_if)
    by_ansible = own.validate(given)
    monkeypatch.setattr(plain, "ARGUMENTS", {**given, "_ansible_check_mode": True})
    if by_ansible.error_messages:
        with pytest.raises(SystemExit) as ended:
            plain.AnsibleModule(**wanted)
        said = json.loads(capsys.readouterr().out)
        assert (ended.value.code, said["failed"]) == (1, True)
        assert said["msg"]
    else:
        module = plain.AnsibleModule(**wanted)
        assert module.params == by_ansible.validated_parameters
        assert module.check_mode


@pytest.mark.parametrize("message", MESSAGES)
def test_a_wrong_argument_is_named(message, tmp_path):
    said = run("release", MESSAGES[message], tmp_path)
    assert said == {"failed": True, "msg": message}
    said = run("verify", {"spec": {"colour": "red"}}, tmp_path)
    assert said["msg"].startswith("Unsupported parameters: spec.colour. Supported parameters")


def run(name: str, arguments: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run a program as a node does: on the standard input of Python, without any Ansible."""
    done = subprocess.run(
        [sys.executable, "-S"],
        input=programs.program(f"fleetbuild.core.{name}", arguments),
        cwd=folder,
        capture_output=True,
        check=False,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (int(said.get("failed", False)), b"")
    return said


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_program_leaves_a_folder_that_its_user_cannot_enter(is_gone, tmp_path):
    """Programs that it starts, such as podman, would end there."""
    texts = {
        "/modules/trial.py": (
            "import os\nfrom ansible.module_utils.basic import AnsibleModule\n"
            "def main():\n    AnsibleModule(argument_spec={}).exit_json(folder=os.getcwd())\n"
        )
    }
    code = f"{Path(plain.__file__).read_text()}\nrun('trial', {texts!r}, {{}})\n"
    folder = tmp_path / "locked"
    folder.mkdir()
    close = "import os\n" + (
        f"os.rmdir({str(folder)!r})\n"
        if is_gone
        # Root may enter every folder; the test must not depend on who runs it.
        else f"os.access = lambda path, _: path != {str(folder)!r}\n"
    )
    done = subprocess.run(
        [sys.executable, "-"], input=(close + code).encode(), cwd=folder, stdout=-1, check=True
    )
    assert json.loads(done.stdout) == {"folder": "/"}


def test_values_that_json_lacks_are_sent_as_ansible_sends_them():
    given = [datetime.date(2026, 1, 31), MappingProxyType({"a": 1}), UserString("vaulted")]
    sent = json.loads(json.dumps(given, default=programs._plain))
    assert sent == ["2026-01-31", {"a": 1}, "vaulted"]
    for refused in ({"a"}, b"a"):
        with pytest.raises(TypeError, match="cannot be sent"):
            programs.program("fleetbuild.core.release", {"spec": refused})


def test_a_program_needs_nothing_but_python(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('of the folder')")
    (tmp_path / "release_root.py").write_text("raise SystemExit('of the folder')")
    path = str(tmp_path / "opt é")
    said = run("release", {"state": "query", "spec": {"path": path}}, tmp_path)
    assert (said["root"], said["complete"], said["changed"]) == (path, False, False)
    said = run("toolchain", {"python": sys.executable, "packages": {}}, tmp_path)
    assert said["found"]["python"] == "{}.{}".format(*sys.version_info)
    said = run("verify", {"spec": {"path": path}}, tmp_path)
    assert (said["ok"], said["fix"]) == (False, ["install-release"])
    build = {"state": "waited", "dir": str(tmp_path / "none"), "poll": 0, "spec": {}}
    assert "missing required arguments" in run("build", build, tmp_path)["msg"]


def test_a_program_writes_the_script_that_checks_a_release(tmp_path):
    """The script has the source of a module, which no file of the node holds."""
    release = tmp_path / "releases" / "one"
    (release / "bin").mkdir(parents=True)
    (release / "manifest.json").write_text('{"id": "one", "python": "/usr/bin/python3"}')
    spec = {"path": str(tmp_path), "release_id": "one"}
    assert run("verify", {"mark": True, "spec": spec, "_ansible_check_mode": True}, tmp_path)
    assert not list((release / "bin").iterdir())
    assert run("verify", {"mark": True, "spec": spec}, tmp_path) == {"changed": True}
    assert "def try_release" in (release / "bin" / "fleetbuild-sanity").read_text()


def test_the_steps_of_a_container_are_among_the_sources():
    texts = {
        "/module_utils/builder/in_container.py": "",
        "/module_utils/builder/container.py": "import pkgutil\n",
        "/modules/trial.py": (
            "import pkgutil\nfrom ..module_utils.builder import in_container\n"
            "from ansible.module_utils.basic import AnsibleModule\n"
            "def main():\n"
            "    text = pkgutil.get_data(in_container.__package__, 'container.py').decode()\n"
            "    AnsibleModule(argument_spec={}).exit_json(text=text)\n"
        ),
    }
    runner = Path(plain.__file__).read_text()
    code = f"{runner}\nrun('trial', {texts!r}, {{}})\n"
    done = subprocess.run(
        [sys.executable, "-"], input=code.encode(), capture_output=True, check=True
    )
    assert json.loads(done.stdout) == {"text": "import pkgutil\n"}


def test_an_exception_becomes_the_answer(tmp_path):
    texts = {
        "/modules/trial.py": (
            "def main():\n    try:\n        {}['x']\n    except KeyError as error:\n"
            "        raise OSError('full') from error\n"
        )
    }
    runner = Path(plain.__file__).read_text()
    code = f"{runner}\nrun('trial', {texts!r}, {{}})\n"
    done = subprocess.run(
        [sys.executable, "-"], input=code.encode(), capture_output=True, check=False, cwd=tmp_path
    )
    said = json.loads(done.stdout)
    assert (done.returncode, said["failed"], said["msg"]) == (1, True, "full: 'x'")
    assert "raise OSError('full') from error" in said["exception"]


def test_only_a_module_of_ours_asks_for_the_python_of_its_own_host():
    """For a delegated task the variable may need values that the other host lacks."""
    guarded = plugin("plugin_utils.gate").guarded("normal")
    action = guarded.__new__(guarded)
    asked = []
    action._templar = SimpleNamespace(template=lambda text: asked.append(text) or text)
    action._is_pipelining_enabled = lambda *_: True
    for name, host, answer in (
        ("ansible.builtin.stat", None, ""),
        ("fleetbuild.core.release", "other", ""),
        ("fleetbuild.core.release", None, "/python"),
    ):
        action._asked, action._task = (name, {}), SimpleNamespace(delegate_to=host)
        assert action._known_python({"ansible_python_interpreter": "/python"}) == answer
        assert len(asked) == bool(answer)
    assert action._known_python({"ansible_python_interpreter": "auto"}) == ""
