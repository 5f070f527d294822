"""A job whose steps take longer by another version of its code: the code is named, and no machine."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.pace_changes import CodeSwitch
from analyzers.incidents.messages import Declared, Open, Publish, Received
from analyzers.incidents.replay import _step, _tick_until
from analyzers.incidents.state import EngineState
from analyzers.model.verdict import Verdict
from collectors.records import Placement, ProcessState, Record, Steps
from service.packaged_knowledge import load
from tests.support.watched_jobs import START, WatchedJob

CHANGED = 900.0
Event = tuple[float, Received | Declared]


def law(before: float, since: float = math.inf, times: float = 1.0) -> Callable[[int, random.Random], float]:
    """Return steps of so many seconds, and of so many times that since an instant of the job's own time."""
    now = 0.0

    def length(_step: int, noise: random.Random) -> float:
        nonlocal now
        seconds = before * math.exp(noise.gauss(0, 0.02)) * (times if now >= since else 1.0)
        now += seconds
        return seconds

    return length


def declared(at: float, code: str | None, version: int, attempt: int = 0, nodes: Sequence[str] = ("n0", "n1")) -> Event:
    """Return a scheduler's word at an instant."""
    return START + at, Declared(
        job="run",
        attempt=attempt,
        nodes=tuple(node for node in nodes for _ in range(4)),
        code_version=code,
        version=version,
    )


def sent(
    job: WatchedJob, until: float, after: float = 0.0, attempt: int = 0, rename: dict[str, str] | None = None
) -> list[Event]:
    """Return what the agents send of an attempt that began so many seconds after the start."""
    names = rename or {}
    found: list[Event] = []
    for batch in job.batches(0.0, until - after):
        node = names.get(batch.node, batch.node)
        records = tuple(_later(one, after, attempt, node) for one in batch.records)
        moved = {
            name: value + after
            for name in ("received_at", "sent_at")
            if isinstance(value := getattr(batch, name), float)
        }
        found.append((batch.received_at + after, msgspec.structs.replace(batch, node=node, records=records, **moved)))
    return found


def _later(record: Record, seconds: float, attempt: int, node: str) -> Record:
    given = {"attempt": attempt, "node": node, "at": None if record.at is None else record.at + seconds}
    if isinstance(record, ProcessState):
        return msgspec.structs.replace(
            record, **given, pid=(record.pid or 0) + 1000 * attempt, started_at=(record.started_at or 0.0) + seconds
        )
    if isinstance(record, Placement):
        pids = tuple(pid + 1000 * attempt for pid in record.pids)
        return msgspec.structs.replace(record, **given, pids=pids, nodes=(node,) * len(record.nodes))
    if isinstance(record, Steps):
        at = np.frombuffer(record.columns["at"], "<f8") + seconds
        return msgspec.structs.replace(record, **given, columns={**record.columns, "at": at.tobytes()})
    return msgspec.structs.replace(record, **given)


def verdicts(events: Sequence[Event]) -> tuple[list[str], list[Verdict]]:
    """Return the kinds of the incidents that the engine opens, and the verdicts that it publishes."""
    state, done, now = EngineState(knowledge=load()), [], START
    sequence = 0
    for at, event in sorted(events, key=lambda one: one[0]):
        given = event
        if isinstance(event, Received):
            sequence += 1
            given = msgspec.structs.replace(event, sequence=sequence)
        done += _tick_until(state, now, at)
        now = max(now, at)
        done += _step(state, given, now)
    done += _tick_until(state, now, now + 30.0)
    opened = [one.incident.kind for _, one in done if isinstance(one, Open)]
    return opened, [one.verdict for _, one in done if isinstance(one, Publish)]


def same_attempt(times: float, first: str | None = "a", second: str | None = "b") -> tuple[list[str], list[Verdict]]:
    """Return what comes of a job that goes on with another version under its attempt."""
    job = WatchedJob(law=law(1.0, CHANGED, times))
    return verdicts([declared(0.0, first, 1), declared(CHANGED, second, 2), *sent(job, CHANGED + 700.0)])


def next_attempt(nodes: dict[str, str] | None = None) -> list[Verdict]:
    """Return the verdicts of a job whose second attempt has other code, and nodes that replace those of these names."""
    first, second = WatchedJob(law=law(1.0)), WatchedJob(law=law(1.3), seed=4)
    hosts = [(nodes or {}).get(name, name) for name in ("n0", "n1")]
    events = [declared(0.0, "a", 1), declared(CHANGED + 20.0, "b", 2, attempt=1, nodes=hosts)]
    events += sent(first, CHANGED)
    events += sent(second, CHANGED + 800.0, CHANGED + 30.0, 1, nodes)
    return [one for one in verdicts(events)[1] if one.symptom == "slow"]


def test_steps_that_are_longer_by_another_version_are_the_code_s() -> None:
    """The verdict names the code and both versions, and evicts and probes no node."""
    opened, published = same_attempt(1.3)

    assert opened == ["slow"]
    last = published[-1]
    assert (last.symptom, last.cause, last.action.kind) == ("slow", "code", "none")
    assert [(one.kind, one.ranks) for one in last.culprits] == [("code", ())]
    assert last.roots[0].fault_class == "slow_code"
    assert last.first_symptom is not None
    assert "version b" in last.first_symptom.text
    assert "version a" in last.first_symptom.text


def test_a_version_that_is_as_fast_has_no_incident() -> None:
    """Nor one that is faster, or slower by less than a tenth."""
    for times in (1.0, 0.8, 1.05):
        assert same_attempt(times) == ([], [])


def test_without_a_version_before_or_since_nothing_is_compared() -> None:
    """The job has other code, and it is not known which: its rhythm is learned anew."""
    assert same_attempt(1.3, None, "b") == ([], [])
    assert same_attempt(1.3, "a", None) == ([], [])


def test_the_next_attempt_is_compared_with_the_one_before() -> None:
    """On the same nodes the code is what changed; with another node it is open which of the two it is."""
    last = next_attempt()[-1]
    assert (last.cause, last.culprits[0].kind, last.action.kind) == ("code", "code", "none")

    moved = next_attempt({"n1": "n7"})[-1]
    assert (moved.cause, moved.culprits, moved.action.kind) == ("unknown", (), "none")
    assert any("n7" in one.what for one in moved.missing)


def test_more_work_a_step_is_no_slowdown() -> None:
    """With the version the batch grew, and the log shows that as much is done in a second."""
    view = JobView("run", 0)
    job = WatchedJob(law=law(1.0, CHANGED, 1.4))
    for at, event in sent(job, CHANGED + 700.0):
        assert isinstance(event, Received)
        records = tuple(_with_rate(one) for one in event.records)
        if at >= START + CHANGED and view.progress.forgotten_at == 0.0:
            pace = view.progress.usual_pace()
            assert pace is not None
            assert abs(pace.rate - 1_000.0) < 30.0
            view.progress.forget(at)
            view.progress.compare_with(pace, CodeSwitch(before="a", since="b"))
        view.take(event, records)
        assert not [one for one in find_symptoms(view, at) if one.kind == "slow"]


def _with_rate(record: Record) -> Record:
    """A step of a second has 1,000 tokens, and one of the other version, which takes 1.4 s, 1,400."""
    if not isinstance(record, Steps):
        return record
    at = np.frombuffer(record.columns["at"])
    lengths = np.diff(at, prepend=at[0] - 1.0)
    rates = np.where(lengths < 1.2, 1_000.0, 1_400.0) / lengths
    return msgspec.structs.replace(record, columns={**record.columns, "tokens_per_second": rates.tobytes()})
