"""A node behind a bastion whose sudo needs a password from a vault: built, installed, used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.fleet.conftest import MakeLab

PASSWORD = "open sesame"
NODES = {
    "door": {"hardware": "avx"},
    "inner": {
        "hardware": "avx",
        "behind": "door",
        "users": [{"name": "bob", "key": True, "password": PASSWORD, "sudo": "password"}],
        "vars": {"ansible_user": "bob", "ansible_become": True},
    },
}


def program(name: str, *words: str | Path, cwd: Path) -> str:
    path = Path(sys.executable).with_name(name)
    done = subprocess.run(
        [path, *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout + done.stderr


def test_a_wheel_is_built_and_installed_behind_a_bastion_with_a_vaulted_password(
    make_lab: MakeLab, tmp_path: Path
) -> None:
    lab = make_lab({"nodes": NODES})
    (tmp_path / "pass").write_text("of the vault\n")
    vaulted = program(
        "ansible-vault", "encrypt_string", "--vault-password-file", "pass", PASSWORD, cwd=tmp_path
    )
    inventory = tmp_path / "fleet"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(lab.inventory.read_text())
    (inventory / "host_vars").mkdir()
    variable = f"ansible_become_password: {vaulted.partition('Encryption')[0]}"
    (inventory / "host_vars" / "inner.yml").write_text(variable)

    words = ["apply", "fleet", "-l", "inner", "--package", "xxhash==3.6.0"]
    words += ["--vault-password-file", "pass", "--yes"]
    applied = program("fleetbuild", *words, cwd=tmp_path)
    assert PASSWORD not in applied
    again = program("fleetbuild", *words, cwd=tmp_path)
    assert " = cpu-avx-cp311" in again
    use = "/opt/fleetbuild/current/bin/python -c 'import xxhash; print(xxhash.VERSION)'"
    used = subprocess.run(
        ["ssh", "-F", lab.ssh_config, "inner", use],
        capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert used.stdout == "3.6.0\n", used.stderr
