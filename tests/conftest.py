"""What every test file gets: labelled real dumps where there are any, and a table of what each part took."""

from __future__ import annotations

import gc
import os
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from tests.support import authorities
from tests.support.memory import in_memory
from tests.support.postgres import database, postgres, sqlite, url

__all__ = ["database", "postgres", "sqlite", "url"]  # fixtures

# Modules and collected tests stay to the end: looking for garbage among them would take a third of the time of the quick tests.
gc.disable()

# The same examples in every run: a red build must come back red. No deadline: two busy cores make one meaningless.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")

# Databases of tests commit hundreds of times; what a disk would have of them after a power loss no test asks.
if root := in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", root)

authorities.read_once()

REPOSITORY = Path(__file__).resolve().parents[1]

SERVED = {"client", "desk", "served", "service", "shell"}  # fixtures that start the service

COLLECTING = (10_000, 20, 20)  # thresholds of garbage collection: tests make many objects and keep few

_seconds_by_part: dict[str, float] = defaultdict(float)
_tests_by_part: dict[str, set[str]] = defaultdict(set)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer to bring expectations up to date, for review in the diff."""
    parser.addoption(
        "--rewrite", action="store_true", help="write what is printed today into stories and documentation"
    )


@pytest.fixture(scope="session")
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Return whether expectations are to be rewritten rather than compared."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return the folder of labelled real dumps that FAULTHOUND_CORPUS names, or skip with the reason."""
    named = os.environ.get("FAULTHOUND_CORPUS")
    if not named:
        pytest.skip("FAULTHOUND_CORPUS is not set: no labelled real dumps on this machine")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"FAULTHOUND_CORPUS={named} is not a folder: unset it or point it at the labelled dumps")
    return folder


@cache
def may_be_alone(path: Path) -> bool:
    """Return whether a file may hold tests that run alone: those of real jobs, and files that name the marker."""
    return path.is_relative_to(REPOSITORY / "tests" / "real_jobs") or "mark.alone" in path.read_text(encoding="utf-8")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread that have no test for ``-m 'alone …'``: to import all of them takes ten seconds of each worker."""
    wants_alone = re.match(r"alone( and |$)", config.getoption("markexpr"))
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if wants_alone and is_test and not may_be_alone(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what can be seen from a test itself: a running service, a PostgreSQL server, a real job, a bound in time.

    Files that take longest come first, so that no worker begins one when the others are done.
    """
    for item in items:
        if SERVED.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("system")
        parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
        if (
            "postgres" in getattr(item, "fixturenames", ()) and "sqlite" not in parameters
        ) or "postgresql" in parameters:
            item.add_marker("system")
        if item.path.is_relative_to(REPOSITORY / "tests" / "real_jobs"):
            item.add_marker("alone")
        called = getattr(getattr(item, "function", None), "__code__", None)
        names = called.co_names if called is not None else ()
        if "in_time" in names:
            item.add_marker("bound")
        if "served" in names:  # a service of the test's own
            item.add_marker("system")
        if item.get_closest_marker("system") or item.get_closest_marker("alone"):
            # A machine that stands still for seconds fails a test of processes once, a fault twice. The summary names both.
            item.add_marker(pytest.mark.flaky(reruns=1))
        if item.get_closest_marker("alone"):
            assert may_be_alone(item.path), f"{item.path} has tests that run alone: it must say mark.alone itself"
    longest = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in longest)


def pytest_collection_finish() -> None:
    """Look for garbage again from here on, in what the tests make."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTING)
    gc.enable()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test's set-up, call and tear-down to its file's total."""
    part = report.nodeid.partition("::")[0]
    _seconds_by_part[part] += report.duration
    _tests_by_part[part].add(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each part took, longest first."""
    terminalreporter.section("what each part took")
    for part, seconds in sorted(_seconds_by_part.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"{seconds:8.1f} s  {len(_tests_by_part[part]):4d} tests  {part}")
    terminalreporter.write_line(f"{sum(_seconds_by_part.values()):8.1f} s  in all")
