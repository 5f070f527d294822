"""Two schedulers, one person, crashes, retries, lost answers and a clock that goes on: what must hold whatever happens.

The rules are stated by ``remediation_invariants.py``, which asks neither guard nor breaker. That it would see a broken one is
shown by breaking ``step`` in as many ways as there are rules.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzers.remediation import attempts, guards, messages, step
from analyzers.remediation import types as words
from analyzers.remediation.messages import AuditEntry, RemediationEvent, RemediationInstruction, Store
from analyzers.remediation.types import RemediationState
from service.remediation import fleet_facts, rows
from service.remediation.repository import RemediationRepository
from service.store.database import Database
from tests.support.remediation_actions import ACTIONS, drawn, play
from tests.support.remediation_world import POLICIES, Step, World

INTERLEAVINGS = 1_000
STORED = 6  # of them on a real store, which takes a thousand times as long
MUTANTS_LEAST = 12_000  # within so many interleavings each broken step is caught
actions = st.lists(st.tuples(st.sampled_from(sorted(ACTIONS)), st.integers(0, 11), st.integers(0, 59)), max_size=40)


@pytest.mark.acceptance
@settings(max_examples=150)
@given(limits=st.integers(0, 2), done=actions)
def test_no_interleaving_breaks_a_rule(limits: int, done: list[tuple[str, int, int]]) -> None:
    """Whatever hypothesis makes happen, each accepted step keeps every rule, and all that was done can be undone."""
    play(World(limits=limits), done)


@pytest.mark.system
def test_thousands_of_interleavings_break_no_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """Seeded interleavings of eighty things, in which most proposals get as far as execution, break none either."""
    worlds = [play(World(limits=seed), drawn(seed)) for seed in range(INTERLEAVINGS)]

    executed = sum(len(world.invariants.did) for world in worlds)
    codes = {code for world in worlds for code in world.invariants.codes}
    with capsys.disabled():
        print(
            f"\n{INTERLEAVINGS} seeded interleavings and 150 of hypothesis: {sum(world.accepted for world in worlds):,} events "
            f"accepted, {sum(world.refused for world in worlds):,} refused, {executed} executions"
        )
    assert executed > INTERLEAVINGS / 4
    assert codes == {"conflict", "hindered", "fenced", "not_found"}
    tripped = [world for world in worlds if world.invariants.open or world.invariants.closed_at > 0]
    assert tripped, "no interleaving has come as far as the breaker"


@pytest.mark.parametrize("seed", range(STORED))
def test_the_store_does_what_the_step_says(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite each event of an interleaving is refused, stored and reported as the pure step has it, and read back so."""
    database = Database(f"sqlite:///{tmp_path}/store.sqlite")
    database.migrate()
    world = World(limits=seed, probe=step.step)
    remedies = RemediationRepository(database, lambda: world.book.policy)
    monkeypatch.setattr(fleet_facts, "load_facts", lambda _session, _now, _concerned: world.facts())
    monkeypatch.setattr(rows, "count_cases", lambda _session, _policy: world.book.tallies)

    def stored(
        book: RemediationState, event: RemediationEvent, now: float
    ) -> tuple[RemediationState, list[RemediationInstruction]]:
        """Let both have the event; what they make of it must be the same."""
        try:
            after, said = step.step(book, event, now)
        except messages.RemediationRefused as refused:
            with pytest.raises(messages.RemediationRefused) as as_well:
                remedies.handle(event, now)
            code: str = refused.code
            assert as_well.value.code == code
            raise
        assert sorted(remedies.handle(event, now), key=repr) == sorted(said, key=repr)  # of a tick in either's order
        kept = remedies.state(now, *after.remediations)
        assert kept.remediations == after.remediations
        assert (kept.holds, kept.freeze, kept.trip) == (after.holds, after.freeze, after.trip)
        return after, said

    world.step = stored
    play(world, drawn(seed))
    database.close()
    assert world.accepted > 5


def broken(
    change: Callable[[RemediationState, RemediationEvent, float], tuple[RemediationState, RemediationEvent, float]],
) -> Step:
    """Return a step that sees another book, event or instant than it is given."""
    return lambda book, event, now: step.step(*change(book, event, now))


def spoiled(
    change: Callable[
        [RemediationState, RemediationEvent, RemediationState, list[RemediationInstruction]],
        tuple[RemediationState, list[RemediationInstruction]],
    ],
) -> Step:
    """Return a step whose outcome is another."""
    return lambda book, event, now: change(book, event, *step.step(book, event, now))


def _endless(
    book: RemediationState, event: RemediationEvent, now: float
) -> tuple[RemediationState, RemediationEvent, float]:
    """Whoever holds a claim is obeyed, however late."""
    row = book.remediations.get(getattr(event, "id", ""))
    if isinstance(event, messages.Begin | messages.Heartbeat) and row is not None and row.claim is not None:
        now = min(now, row.claim.until - 1.0)
    return book, event, now


def _any_token(
    book: RemediationState, event: RemediationEvent, now: float
) -> tuple[RemediationState, RemediationEvent, float]:
    """Every token is as good as the newest."""
    row = book.remediations.get(getattr(event, "id", ""))
    if (
        row is None
        or row.claim is None
        or not isinstance(event, messages.Begin | messages.Heartbeat | messages.Complete | messages.Fail)
    ):
        return book, event, now
    return book, replace(event, token=row.claim.token, by=row.claim.by), now


def _forgetful(
    book: RemediationState, event: RemediationEvent, now: float
) -> tuple[RemediationState, RemediationEvent, float]:
    """What was executed is forgotten at once."""
    return replace(book, executions=[]), event, now


def _fickle(
    book: RemediationState, event: RemediationEvent, now: float
) -> tuple[RemediationState, RemediationEvent, float]:
    """What was rejected is proposed again."""
    plan = event.plan if isinstance(event, messages.Proposed) else None
    row = book.remediations.get(plan.id) if plan is not None else None
    if row is not None and row.status == "rejected":
        book = replace(book, remediations=book.remediations | {row.id: replace(row, status="cancelled")})
    return book, event, now


def _forgiving(
    book: RemediationState, event: RemediationEvent, now: float
) -> tuple[RemediationState, RemediationEvent, float]:
    """What a person cancelled a policy approves again."""
    row = (
        book.remediations.get(event.plan.id)
        if isinstance(event, messages.Proposed) and event.plan is not None
        else None
    )
    if row is not None and row.status == "cancelled":
        book = replace(book, remediations=book.remediations | {row.id: replace(row, cancelled_by="")})
    return book, event, now


def _again(
    _before: RemediationState, event: RemediationEvent, after: RemediationState, said: list[RemediationInstruction]
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """What was being executed when its lease ran out is claimed again."""
    if not isinstance(event, messages.RemediationTick):
        return after, said
    rows = {
        id: replace(row, status="approved") if row.status == "failed" and row.undo is None else row
        for id, row in after.remediations.items()
    }
    said = [Store(remediation=rows[one.remediation.id]) if isinstance(one, Store) else one for one in said]
    return replace(after, remediations=rows), said


def _closes(
    _before: RemediationState, event: RemediationEvent, after: RemediationState, said: list[RemediationInstruction]
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """The breaker closes with time."""
    return (replace(after, trip=None) if isinstance(event, messages.RemediationTick) else after), said


def _silent(
    _before: RemediationState, event: RemediationEvent, after: RemediationState, said: list[RemediationInstruction]
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """Who claims is not reported."""
    return after, [one for one in said if not isinstance(one, AuditEntry) or one.kind != "remediation_claimed"]


def _unstored(
    _before: RemediationState, event: RemediationEvent, after: RemediationState, said: list[RemediationInstruction]
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """That a scheduler began is not stored."""
    return after, [one for one in said if not isinstance(one, Store) or not isinstance(event, messages.Begin)]


def _same_tag(
    before: RemediationState, event: RemediationEvent, after: RemediationState, said: list[RemediationInstruction]
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """An approval leaves the ETag as it is."""
    if isinstance(event, messages.Approve):
        row = replace(after.remediations[event.id], version=before.remediations[event.id].version)
        after = replace(after, remediations=after.remediations | {row.id: row})
        said = [Store(remediation=row) if isinstance(one, Store) else one for one in said]
    return after, said


def _hasty(
    book: RemediationState, event: RemediationEvent, now: float
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """Changes the book before it refuses."""
    try:
        return step.step(book, event, now)
    except messages.RemediationRefused:
        book.executions.append(words.Execution(remediation="rem-0", at=now, nodes=("gpu-0000",)))
        raise


def _stubborn(
    book: RemediationState, event: RemediationEvent, now: float
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """Takes back nothing that failed."""
    if isinstance(event, messages.AskUndo) and book.remediations[event.id].status == "failed":
        raise messages.RemediationRefused("conflict", "it failed: there is nothing to undo")
    return step.step(book, event, now)


def _generous(
    book: RemediationState, event: RemediationEvent, now: float
) -> tuple[RemediationState, RemediationEvent, float]:
    """An undo gives everything back, whoever has taken it out as well."""
    return replace(book, facts=replace(book.facts, taken={})), event, now


def _hopeful(
    _before: RemediationState, event: RemediationEvent, after: RemediationState, said: list[RemediationInstruction]
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """That a claim failed before it began is forgotten: it is tried for ever."""
    row = after.remediations.get(getattr(event, "id", ""))
    if not isinstance(event, messages.Fail) or row is None or row.began_at is not None or row.status != "failed":
        return after, said
    again = replace(row, status="approved")
    reported = AuditEntry(kind="remediation_released", by=event.by, remediation=row.id)
    return replace(after, remediations=after.remediations | {row.id: again}), [Store(remediation=again), reported]


def _final(
    _before: RemediationState, event: RemediationEvent, after: RemediationState, said: list[RemediationInstruction]
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """A claim that fails before it began is the end."""
    row = after.remediations.get(getattr(event, "id", ""))
    if not isinstance(event, messages.Fail) or row is None or row.status != "approved":
        return after, said
    ended = replace(row, status="failed")
    reported = AuditEntry(kind="remediation_failed", by=event.by, remediation=row.id)
    return replace(after, remediations=after.remediations | {row.id: ended}), [Store(remediation=ended), reported]


def _uncounted(
    before: RemediationState, event: RemediationEvent, after: RemediationState, said: list[RemediationInstruction]
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """What is done before it began counts nowhere."""
    return (replace(after, executions=before.executions) if isinstance(event, messages.Fail) else after), said


def _loyal(
    book: RemediationState, event: RemediationEvent, now: float
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """What a rule has approved stays approved, whatever becomes of the rule."""
    before = next(policy for policy in POLICIES if policy.limits == book.limits)
    after, said = step.step(
        replace(book, policy=before) if isinstance(event, messages.RemediationTick) else book, event, now
    )
    return replace(after, policy=book.policy), said


MUTANTS: dict[str, Step] = {
    "no lease ends": broken(_endless), "any token": broken(_any_token), "forgets": broken(_forgetful),
    "rejections end": broken(_fickle), "cancels end": broken(_forgiving),
    "claimed again": spoiled(_again), "closes itself": spoiled(_closes),
    "untold": spoiled(_silent), "unstored": spoiled(_unstored), "same ETag": spoiled(_same_tag),
    "hasty": _hasty, "stubborn": _stubborn, "gives all back": broken(_generous), "tries for ever": spoiled(_hopeful),
    "fails at once": spoiled(_final), "keeps approvals": _loyal, "counts no unasked": spoiled(_uncounted),
}  # fmt: skip


def caught(of: Step) -> tuple[int, str] | None:
    """Return the interleaving that shows a broken step, and by which rule."""
    for seed in range(MUTANTS_LEAST):
        try:
            play(World(limits=seed, step=of), drawn(seed))
        except AssertionError as error:
            return seed + 1, str(error).partition("\n")[0]
    return None


@pytest.mark.acceptance
@pytest.mark.parametrize("guard", sorted(guards.GUARDS))
def test_without_a_guard_a_rule_is_broken(
    guard: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each guard is needed: with it taken out, an interleaving breaks a rule that the invariants state."""
    monkeypatch.setattr(guards, "GUARDS", {code: asked for code, asked in guards.GUARDS.items() if code != guard})

    found = caught(step.step)

    assert found is not None, f"without {guard!r} no rule is broken in {MUTANTS_LEAST} interleavings"
    with capsys.disabled():
        print(f"\nwithout {guard!r}, after {found[0]} interleavings: {found[1]}")


@pytest.mark.acceptance
def test_acting_twice_on_an_attempt_is_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one at a time as the only bound, what is complete and not answered yet lets another act on the same attempt."""
    monkeypatch.setattr(attempts, "explain_wait", lambda _book, _one, _now: None)

    found = caught(step.step)

    assert found is not None, f"no rule is broken in {MUTANTS_LEAST} interleavings"
    assert "on which" in found[1]
    with capsys.disabled():
        print(f"\nacting twice, after {found[0]} interleavings: {found[1]}")


@pytest.mark.acceptance
@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_broken_step_is_caught(mutant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each way in which a step is broken here breaks a rule that the invariants state."""
    found = caught(MUTANTS[mutant])

    assert found is not None, f"{mutant!r} breaks no rule in {MUTANTS_LEAST} interleavings"
    with capsys.disabled():
        print(f"\n{mutant!r}, after {found[0]} interleavings: {found[1]}")
