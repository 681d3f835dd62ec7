"""Plans and `explain` with the evidence of an extension, and without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetbuild.audit import audit_wheel
from fleetbuild.extension import Evidence
from fleetbuild.models import Config
from fleetbuild.models.verdict import Code, Verdict
from fleetbuild.plan.explain import explain_name
from fleetbuild.plan.plan_fleet import plan_fleet
from fleetbuild.plan.resolve.requirement_files import RequirementList
from fleetbuild.state import StateDir
from tests.factories.files import be_only_index, make_sdist, make_wheel
from tests.factories.fleets import facts, inventory

TAG = "cp311-cp311-manylinux_2_17_x86_64"
AUTO = Config.model_validate({"build": {"policy": "auto"}})


class Known(Evidence):
    """Knows that these versions die on a CPU without AVX2, and what the code of a wheel needs."""

    def __init__(self, *versions: str, verdict: Any = "dies-at-import", **more: Any) -> None:
        self.versions = versions
        self.found = Verdict(verdict=verdict, where="in `work`", **more)

    def verdict(self, file, target, beside):
        assert file in beside
        return self.found if self.dies(file, target) else None

    def code(self, file, target):
        return Code(problem="it dies there") if self.dies(file, target) else Code(ran=True)

    def dies(self, file, target):
        return file.version in self.versions and "avx2" not in target.features


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index with a source, and three versions of the wheel that it requires."""
    for version in ("1.0", "2.0.1", "2.0.2"):
        make_wheel(tmp_path / "files", "dep", version, TAG)
    make_sdist(tmp_path / "files", "pkg", requires='["dep"]')
    be_only_index(tmp_path / "files", monkeypatch)
    return tmp_path / "files"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch):
    def know(evidence: Evidence | None) -> None:
        monkeypatch.setattr("fleetbuild.plan.plan_fleet.find_evidence", lambda _: evidence)
        monkeypatch.setattr("fleetbuild.plan.explain.find_evidence", lambda: evidence)

    return know


def plan(fleet, *packages, config=None):
    return plan_fleet(inventory(fleet), fleet, config, packages)


def locked(made):
    return {group.name: [file.version for file in group.dependencies] for group in made.groups}


FLEET = {"old": facts("avx"), "new": facts("avx2")}


@pytest.mark.usefixtures("site")
def test_an_older_dependency_is_locked_where_the_newest_dies_at_import(known):
    known(Known("2.0.1", "2.0.2"))
    made = plan(FLEET, "pkg==1.0")
    assert locked(made) == {"cpu-avx-cp311": ["1.0"], "cpu-avx2-cp311": ["2.0.2"]}


@pytest.mark.parametrize("asked", ["mine", "mine>=2", "mine==2.0.1", "mine ; bounded"])
def test_the_newest_of_a_listed_range_that_runs_is_taken_where_the_newest_dies(site, known, asked):
    for version in ("1.0", "2.0.0", "2.0.1"):
        make_wheel(site, "mine", version, TAG)
    known(Known("2.0.0", "2.0.1"))
    name, _, bounded = asked.partition(" ; ")
    listed = RequirementList(requirements=(name,), constraints=("mine!=1.0",) if bounded else ())
    made = plan_fleet(inventory(FLEET), FLEET, requirements=listed)
    old, new = (group.wheels[0] for group in made.groups)
    assert (new.version, made.nodes["new"].state) == ("2.0.1", "ok")
    if asked == "mine":
        assert (old.version, old.published.version, made.exit_code) == ("1.0", "1.0", 0)
        assert old.reason.endswith("does not fit: it dies there.")
        assert "mine for cpu-avx-cp311: 1.0 in place of 2.0.1, which" in made.warnings[0]
    else:  # the user asks for no other version
        assert "mine 2.0.1 cannot be installed. mine-2.0.1-" in made.nodes["old"].reason
        assert "Or ask for another version or a range: the newest" in made.nodes["old"].fix


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(("evidence", "state"), [("static", "ok"), ("emulated", "blocked")])
def test_a_death_in_use_that_was_only_read_blocks_no_node(known, evidence, state):
    known(Known("2.0.2", verdict="dies-in-use", evidence=evidence))
    assert plan(FLEET, "pkg==1.0").nodes["old"].state == state


@pytest.mark.usefixtures("site")
def test_without_such_an_extension_nothing_is_held_back_or_explained(known):
    known(None)
    made = plan(FLEET, "pkg==1.0")
    assert locked(made) == {"cpu-avx-cp311": ["2.0.2"], "cpu-avx2-cp311": ["2.0.2"]}
    lines = explain_name(made, "old", StateDir(Path(".fleetbuild").absolute()), None).lines
    assert not any("evidence" in line for line in lines)


def test_auto_audits_a_published_wheel_once_if_nothing_is_known_of_it(site, known, monkeypatch):
    read = []

    def audit(path):
        read.append(path.name)
        return audit_wheel(path)

    monkeypatch.setattr("fleetbuild.plan.resolve.published.audit_wheel", audit)
    make_wheel(site, "mine", tag=TAG)
    known(None)
    made = plan(FLEET, "mine==1.0", config=AUTO)
    assert [group.wheels[0].action for group in made.groups] == ["published"] * 2
    assert read == [f"mine-1.0-{TAG}.whl"]
    known(Known())
    make_wheel(site, "mine", "2.0", TAG)
    made = plan(FLEET, "mine==2.0", config=AUTO)
    assert "Ran on a CPU like avx" in made.groups[0].wheels[0].reason
    assert len(read) == 1
