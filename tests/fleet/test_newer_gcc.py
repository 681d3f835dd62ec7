"""A node whose default gcc is too old for its rung, and has a newer one beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetbuild import Config, Fleet
from tests.fleet.test_apply import source_tree
from tests.lab import Lab

# A gcc of 2010, which knows no AVX2 and says so, and gcc 11, which is the node's real one.
SETUP = r"""
for name in gcc g++; do
  cat > /usr/local/bin/$name <<'END'
#!/bin/sh
case $* in
  *-version* | *-dumpversion* | *-dumpfullversion*) echo 4.5.4 ;;
  *) echo "error: this is the compiler of 2010" >&2; exit 1 ;;
esac
END
  cat > /usr/local/bin/$name-11 <<END
#!/bin/sh
case \$* in
  -dumpversion) echo 11 ;;
  -dumpfullversion*) echo 11.3.0 ;;
  --version) echo "$name (Debian 11.3.0-12) 11.3.0" ;;
  *) exec /usr/bin/$name "\$@" ;;
esac
END
  chmod 755 /usr/local/bin/$name /usr/local/bin/$name-11
done
ln -sf gcc /usr/local/bin/cc; ln -sf g++ /usr/local/bin/c++
ln -sf gcc /usr/local/bin/x86_64-linux-gnu-gcc; ln -sf g++ /usr/local/bin/x86_64-linux-gnu-g++
"""


def test_a_newer_gcc_beside_the_default_one_builds_the_wheel(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = make_lab({"nodes": {"old": {"hardware": "avx2", "setup": SETUP}}})
    fleet = Fleet(lab.inventory, config=Config(), state_dir=tmp_path / "state", timeout=15)
    facts = fleet.probe()
    assert facts["old"].toolchain["gcc"] == ("4.5.4",)
    tree = source_tree(tmp_path / "tiny")
    (tree / "module.c").rename(tree / "module.cpp")
    setup = (tree / "setup.py").read_text()
    (tree / "setup.py").write_text(setup.replace("module.c", "module.cpp"))
    plan = fleet.plan([f"tiny @ {tree}"], facts=facts)
    (wheel,) = plan.groups[0].wheels
    assert wheel.build_gccs == {"old": "11"}
    assert wheel.requires.compiler == (
        "gcc 11.3.0 (present: gcc 4.5.4 does not know abm, avx2, bmi1, bmi2, f16c, fma, movbe)"
    )
    result = fleet.apply(plan)
    assert result.exit_code == 0, result.model_dump_json(indent=1)
    assert [node.state for node in result.nodes] == ["installed"]
