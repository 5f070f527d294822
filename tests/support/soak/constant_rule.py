"""The control: an alarm after 60 seconds without a step, and at each process that fails, by the records that the service has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.soak.kinds import KINDS

Row = dict[str, Any]
SILENCE_SECONDS = 60.0
SAME_SECONDS = 30.0  # further processes of the job that fail are the same alarm
EARLY_SECONDS, LATE_SECONDS = 10.0, 60.0


def alarms(shown: Row, started_at: float, ended_at: float) -> Iterator[tuple[float, str]]:
    """Yield when it alarms in one run of a job, and for what."""
    steps = [at for at in shown["steps"] if started_at <= at <= ended_at]
    last = started_at
    for at in (*steps, ended_at):
        if at - last > SILENCE_SECONDS:
            yield last + SILENCE_SECONDS, "hang"
        last = at
    before = None
    for at in shown["failed"]:
        if started_at <= at <= ended_at + LATE_SECONDS and (before is None or at - before > SAME_SECONDS):
            yield at, "crash"
            before = at


def compare(events: Sequence[Row], shown: dict[str, Row], runs: Sequence[Row]) -> Row:
    """Return how many of its alarms no fault explains, and how many faults it has not seen; whom it names does not count."""
    faults = [event for event in events if KINDS[event["kind"]].reported == "must"]
    heard: set[int] = set()
    raised = wrong = 0
    for run in runs:
        given = shown.get(run["job"])
        for at, kind in alarms(given, run["started_at"], run["ended_at"]) if given else ():
            raised += 1
            of = [
                number for number, fault in enumerate(faults)
                if fault["job"] == run["job"] and kind in KINDS[fault["kind"]].incidents
                and fault["at"] - EARLY_SECONDS <= at <= fault["until"] + LATE_SECONDS
            ]  # fmt: skip
            heard.update(of)
            wrong += not of
    return {
        "rule": f"{SILENCE_SECONDS:.0f} s without a step, or a process that fails",
        "alarms": raised, "wrong_alarms": wrong, "faults": len(faults), "faults_missed": len(faults) - len(heard),
    }  # fmt: skip
