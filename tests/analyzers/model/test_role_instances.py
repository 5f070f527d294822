"""What is known of an instance does not go back: readings come late from a spool, and clocks are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest
from msgspec.structs import replace

from analyzers.incidents.job_views import RoleReadings
from analyzers.model.role_stalls import stalled
from collectors.records import RoleState
from tests.support.role_readings import END, GENERATES, START, named, readings, rules, scene

DEAD = {("rollout", "3"): {**GENERATES, "still_from": 400.0, "answers": True}}
DEAD_ENGINE = (("engine_still", "rollout", "3"),)
Arrives = Callable[[RoleState], float]


def live(records: Iterable[RoleState], arrives: Arrives) -> set[tuple[tuple[str, str, str], ...]]:
    """Return what is named in the last minute by a service that takes each reading when it comes."""
    known, found = RoleReadings(), set[tuple[tuple[str, str, str], ...]]()
    for come, _, record in sorted((arrives(one), place, one) for place, one in enumerate(records)):
        known.take(replace(record, received_at=come), come)
        if come > END - 60.0:
            stalls = stalled(known.instances(), known.heard_at, rules())
            found.add(tuple((one.fault_class, one.role, one.instance) for one in stalls))
    return found


def at(record: RoleState) -> float:
    """A reading comes at once."""
    return record.at or 0.0


def clumped(record: RoleState) -> float:
    """The readings of three nodes come minute by minute, out of a spool."""
    return at(record) if record.role in ("trainer", "reward") else START + 60.0 * (1 + (at(record) - START) // 60.0)


def retried(record: RoleState) -> float:
    """A batch of the time before the fault comes minutes after it."""
    return END - 35.0 if START + 370.0 < at(record) < START + 395.0 else at(record)


@pytest.mark.parametrize("arrives", [at, clumped, retried])
def test_what_comes_late_is_neither_progress_nor_a_rest(arrives: Arrives) -> None:
    """A dead engine stays named, and healthy ones stay unnamed, in whatever order the readings come."""
    assert live(scene(DEAD), arrives) == {DEAD_ENGINE}
    assert live(scene(), arrives) == {()}


def split(records: Iterable[RoleState]) -> Iterator[RoleState]:
    """Yield what its log says of each instance, and what its metrics do, which are stamped half a minute earlier."""
    for one in records:
        counted = {"tokens_total": None, "steps_total": None, "requests_running": None, "answers": None}
        yield replace(one, source="log", **counted)
        said = {"phase": None, "phase_since": None, "waiting_for": None, "waiting_since": None, "renewed_at": None}
        yield replace(one, source="engines", at=at(one) - 30.0, state=None, weights=None, **said)


def test_sources_are_each_of_their_own_time() -> None:
    """A log's phases do not outdate an engine's metrics that are stamped earlier, in whatever order they come."""

    def arrives(one: RoleState) -> float:
        return at(one) + (30.0 if one.source == "engines" else 0.0)

    assert live(split(scene(DEAD)), arrives) == {DEAD_ENGINE}
    assert live(split(scene()), arrives) == {()}


def test_a_clock_that_was_wrong_for_a_while_hides_nothing() -> None:
    """An hour ahead for two minutes: the readings after it count, and those of that time are of when they came."""

    def shifted(records: Iterable[RoleState]) -> list[RoleState]:
        wrong = (START + 300.0, START + 420.0)
        return [
            replace(one, at=at(one) + 3_600.0) if one.instance == "3" and wrong[0] <= at(one) < wrong[1] else one
            for one in records
        ]

    def arrived(one: RoleState) -> float:
        return at(one) - 3_600.0 if at(one) > END else at(one)

    assert live(shifted(scene(DEAD)), arrived) == {DEAD_ENGINE}
    assert live(shifted(scene()), arrived) == {()}


def test_the_order_of_files_is_no_matter() -> None:
    """In files all readings are there, and are sorted."""
    assert named(reversed(scene(DEAD))) == [*DEAD_ENGINE]


def finished(longest: float, at_work: int = 8) -> Iterator[RoleState]:
    """Four rollouts that count their tokens when a batch ends: batches of 90 s, the newest of rollout 3 for so long."""
    for number in range(4):
        begun = END - longest if number == 3 else END - 30.0
        batches = [begun - 90.0 * back for back in range(int((begun - START) / 90.0) + 1)]
        for one in readings("rollout", str(number), phase="generate", weights=7, running=at_work):
            ended = sum(at(one) >= batch for batch in batches)
            yield replace(one, tokens_total=1_000 + 16_000 * ended)


@pytest.mark.parametrize(("longest", "expected"), [(200.0, []), (380.0, []), (560.0, [*DEAD_ENGINE])])
def test_an_engine_that_counts_what_has_ended_rests_for_as_long_as_its_work_takes(
    longest: float, expected: list[tuple[str, str, str]]
) -> None:
    """A batch may take several times as long as any before, and none is slow by what it has not counted yet."""
    others = scene({("rollout", str(number)): None for number in range(4)})
    assert named([*others, *finished(longest)]) == expected


def test_an_engine_that_counts_each_token_is_found_as_soon_as_ever() -> None:
    """The same rest of one that was seen to move at every reading."""
    changes = {("rollout", "3"): {**GENERATES, "still_from": 460.0}}
    assert named(scene(changes)) == [*DEAD_ENGINE]
