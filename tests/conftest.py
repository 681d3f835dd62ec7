"""What all tests share: the marks that folders imply, and the options of the lab."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, and nothing of the code.
settings.register_profile("fleetbuild", deadline=None, max_examples=25)
settings.register_profile("long", settings.get_profile("fleetbuild"), max_examples=200)

_TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fleetbuild")
    group.addoption("--keep-lab", action="store_true", help="leave the labs up after the tests")
    group.addoption("--no-fleet", action="store_true", help="skip tests that need the lab's nodes")
    group.addoption("--update-golden", action="store_true", help="write golden files again")
    group.addoption("--soak", action="store_true", help="also run every fault, for hours")
    group.addoption("--record", type=Path, help="note fault tests in FILE; skip passed ones")
    group.addoption("--long", action="store_true", help="also run the tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "fleetbuild")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts it for `make test &`
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "molecule: runs a role's Molecule scenario in the lab")
    config.addinivalue_line("markers", "long: takes minutes; run by make test-long")
    config.addinivalue_line("markers", "soak: takes hours in all; run by make soak")
    config.addinivalue_line("markers", "no_cover: pytest-cov, where it is installed, leaves it out")
    config.addinivalue_line("markers", "fleet: needs the lab's real SSH nodes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for folder in ("fleet", "molecule"):
            if (_TESTS / folder) in item.path.parents:
                item.add_marker(folder)
        if (_TESTS / "faults") in item.path.parents:
            item.add_marker("fleet")
        needs_lab = any(item.get_closest_marker(mark) for mark in ("fleet", "molecule"))
        if needs_lab and config.getoption("--no-fleet"):
            item.add_marker(pytest.mark.skip(reason="--no-fleet"))
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("no_cover")  # tracing hundreds of examples takes twice their own time
        if item.get_closest_marker("long") and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: make test-long"))
    if not config.getoption("--soak"):  # not skipped: hundreds would hide what else did not run
        soak = [item for item in items if item.get_closest_marker("soak")]
        items[:] = [item for item in items if item not in soak]
        config.hook.pytest_deselected(items=soak)


@pytest.fixture(autouse=True, scope="session")
def _no_inventories_kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Read inventories as if none had been read before. Other caches (uv, pip) stay in use."""
    folder = tmp_path_factory.mktemp("inventories")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetbuild.ansible.kept_inventories.own_cache", lambda _: folder)
        yield


@pytest.fixture(autouse=True)
def evidence_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The folder of evidence about wheels; no test sees the evidence of another one."""
    folder = tmp_path_factory.getbasetemp() / "evidence" / token_hex(8)
    with suppress(ImportError):  # the core alone keeps none
        monkeypatch.setattr("fleetbuild.extensions.check.results.own_cache", lambda _: folder)
    return folder


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, Any], None]:
    """Compares a result with its golden file; --update-golden writes the file instead."""

    def compare(file: Path, result: Any) -> None:
        if request.config.getoption("--update-golden"):
            text = json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False)
            file.write_text(text + "\n", encoding="utf-8")
        path = file.relative_to(_TESTS.parent)
        update = f"python -m pytest {request.node.nodeid} --update-golden && git diff {path}"
        assert result == json.loads(file.read_text(encoding="utf-8")), (
            f"{path} has something else. If the change is meant: {update}"
        )

    return compare


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that did not run, and what they need."""
    missing: dict[tuple[str, str], dict[str, None]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        file, _, name = report.nodeid.partition("::")
        why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        named = missing.setdefault((file, why.removeprefix("Skipped: ")), {})
        named[name.partition("[")[0] or "all of it"] = None
    for (file, why), names in sorted(missing.items()):
        terminalreporter.write_line(f"not run: {file}: {', '.join(names)} ({why})")
