"""What can happen in the world of ``remediation_world.py``: a list of (word, number, number), the numbers choosing among what is.

Hypothesis draws and shrinks such lists; a seeded generator makes thousands of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import msgspec

from analyzers.remediation import messages
from analyzers.remediation import types as words
from tests.support.remediation_world import INCIDENTS, NODES, POLICIES, WAITS, Job, Scheduler, World

Action = tuple[str, int, int]


def play(world: World, actions: Iterable[Action]) -> World:
    """Let all of it happen, and at the end take everything back that was done."""
    for word, a, b in actions:
        ACTIONS[word](world, a, b)
    world.everything_can_be_undone()
    return world


# --- the engine


def _wait(world: World, a: int, b: int) -> None:
    world.now += WAITS[a % len(WAITS)]
    if b % 2:
        world.send(messages.RemediationTick(), keep=False)


def _propose(world: World, a: int, b: int) -> None:
    incident = INCIDENTS[a % len(INCIDENTS)]
    if b % 3 or incident not in world.versions:
        world.versions[incident] = world.versions.get(incident, 0) + 1
    if b % 4 or incident not in world.plans:  # else the newer verdict says the same again
        world.plans[incident] = (a, b)
    world.send(messages.Proposed(incident=incident, plan=world.plan(*world.plans[incident])), keep=False)


def _publish(world: World, a: int, _b: int) -> None:
    """A newer verdict is there, and its plan not yet."""
    incident = INCIDENTS[a % len(INCIDENTS)]
    world.versions[incident] = world.versions.get(incident, 0) + 1


def _withdraw(world: World, a: int, b: int) -> None:
    world.send(messages.Proposed(incident=INCIDENTS[a % len(INCIDENTS)], plan=None, why="it recovered"), keep=False)


def _merge(world: World, a: int, b: int) -> None:
    incident = INCIDENTS[a % len(INCIDENTS)]
    if b % 4 == 0:
        world.merged[incident] = "inc-ffffffffffff"


def _doubt(world: World, _a: int, b: int) -> None:
    world.clock_doubt = "" if world.clock_doubt or b % 2 else "the wall clock was set"


def _report(world: World, a: int, _b: int) -> None:
    world.report(sorted(world.jobs)[a % 2])


def _save(world: World, a: int, b: int) -> None:
    """A checkpoint's save begins, or ends; the service is informed at once, and of placements nothing."""
    name = sorted(world.jobs)[a % 2]
    since = world.now if world.jobs[name].saving_since is None and b % 3 == 0 else None
    world.jobs[name].saving_since = since
    world.reported[name] = msgspec.structs.replace(world.reported[name], saving_since=since)


def _verify(world: World, a: int, b: int) -> None:
    outcome: words.Outcome = ("cured", "not_cured", "unknown")[b % 3]
    if id := world.any(a, "verifying"):
        world.report(world.book.remediations[id].job)
        world.send(messages.Verified(id=id, outcome=outcome, why="ten good steps"), keep=False)


# --- the person


def _approve(world: World, a: int, _b: int) -> None:
    if id := world.any(a, "proposed"):
        world.send(messages.Approve(id=id, by="ann"))


def _reject(world: World, a: int, b: int) -> None:
    if id := world.any(a, "proposed", "approved"):
        say = messages.Reject if b % 2 else messages.Cancel
        world.send(say(id=id, by="ann", reason="not now"))


def _ask_undo(world: World, a: int, _b: int) -> None:
    if id := world.any(a, "verifying", "done", "failed"):
        world.send(messages.AskUndo(id=id, by="ann", reason="it was not the node"))


def _hold(world: World, a: int, b: int) -> None:
    if b % 3 == 0 and world.book.holds:
        world.send(messages.ExpireHold(id=sorted(world.book.holds)[a % len(world.book.holds)], by="ann"))
        return
    named = {"job": sorted(world.jobs)[a % 2]} if b % 5 == 4 else {"node": NODES[a % len(NODES)]}
    until = world.now + WAITS[b % len(WAITS)]
    hold = words.Hold(id=f"hold-{a}-{b}", by="ann", reason="I look at it", made_at=world.now, until=until, **named)
    world.send(messages.AddHold(hold=hold))


def _freeze(world: World, _a: int, b: int) -> None:
    thaw = world.book.freeze is not None
    if not thaw and b % 3:
        return  # most of the time nothing is frozen
    freeze = None if thaw else words.Freeze(by="ann", reason="maintenance", at=world.now)
    world.send(messages.SetFreeze(freeze=freeze, by="ann", reason="maintenance"))


def _edit_policy(world: World, _a: int, b: int) -> None:
    """The policy's rules act by themselves, or leave it to a person from now on."""
    policy = POLICIES[world.limits % len(POLICIES)]
    if b % 2:
        policy = msgspec.structs.replace(
            policy, rules=tuple(msgspec.structs.replace(rule, mode="propose") for rule in policy.rules)
        )
    world.book.policy = policy


def _close_breaker(world: World, _a: int, _b: int) -> None:
    world.send(messages.CloseBreaker(by="ann", reason="I have looked"))


# --- the schedulers


def _take(world: World, a: int, b: int) -> None:
    waiting = [id for id, row in world.book.remediations.items() if row.undo is not None and row.status != "undone"]
    id = sorted(waiting)[a % len(waiting)] if waiting and b % 3 == 0 else world.any(a, "approved")
    if id is None:
        return
    scheduler = world.schedulers[b % 2]
    said = world.send(messages.Take(id=id, by=scheduler.name, seconds=(60.0, 600.0)[b % 5 == 0]))
    if said is not None and b % 11:  # else the answer is lost: it holds a claim, and does not know
        claim = world.book.remediations[id].claim
        assert claim is not None
        scheduler.claims[id] = claim
        scheduler.begun.discard(id)


def _believed(world: World, a: int, b: int) -> tuple[Scheduler, str, words.Claim] | None:
    """Return a claim that a scheduler believes to hold; it may have run out long since."""
    scheduler = world.schedulers[b % 2] if world.schedulers[b % 2].claims else world.schedulers[(b + 1) % 2]
    if not scheduler.claims:
        return None
    id = sorted(scheduler.claims)[a % len(scheduler.claims)]
    return scheduler, id, scheduler.claims[id]


def _heartbeat(world: World, a: int, b: int) -> None:
    if held := _believed(world, a, b):
        scheduler, id, claim = held
        if world.send(messages.Heartbeat(id=id, by=scheduler.name, token=claim.token)) is None and b % 3:
            del scheduler.claims[id]


def _begin(world: World, a: int, b: int) -> None:
    if held := _believed(world, a, b):
        scheduler, id, claim = held
        said = world.send(messages.Begin(id=id, by=scheduler.name, token=claim.token))
        if said is not None and b % 5:  # else the answer is lost, and it asks again
            scheduler.begun.add(id)


def _fail_early(world: World, a: int, b: int) -> None:
    """A scheduler finds that it cannot do what it has claimed, before it has touched anything; or it has, and never asked."""
    held = _believed(world, a, b)
    if held is None or held[1] in held[0].begun:
        return
    scheduler, id, claim = held
    did = dict.fromkeys(world.book.remediations[id].nodes, "drained") if b % 7 == 3 and claim.task == "do" else {}
    failed = messages.Fail(id=id, by=scheduler.name, token=claim.token, reason="no such job", did=did)
    world.send(failed, keep=bool(b % 2))
    del scheduler.claims[id]


def _restart(job: Job, without: tuple[str, ...]) -> None:
    taken = len(set(without) & set(job.nodes))
    job.nodes = tuple(node for node in job.nodes if node not in without)
    job.spares, job.attempt = max(0, job.spares - taken), job.attempt + 1


def _complete(world: World, a: int, b: int) -> None:
    """Act, if it was let, and say so; what is done to the job is seen at its next report."""
    held = _believed(world, a, b)
    if held is None or held[1] not in held[0].begun:
        return
    scheduler, id, claim = held
    row = world.book.remediations[id]
    job = world.jobs[row.job]
    if claim.task == "do":
        _restart(job, row.nodes)
    did = dict.fromkeys(row.nodes, "drained")
    if b % 7 == 0:
        said = world.send(
            messages.Fail(id=id, by=scheduler.name, token=claim.token, reason="scontrol timed out", did=did)
        )
    else:
        said = world.send(messages.Complete(id=id, by=scheduler.name, token=claim.token, did=did))
    if said is None or b % 4:
        del scheduler.claims[id]


def _crash(world: World, _a: int, b: int) -> None:
    world.schedulers[b % 2] = Scheduler(world.schedulers[b % 2].name)


def _replay(world: World, a: int, b: int) -> None:
    """What was once said comes again: a retry, a network that repeats, or somebody who has listened."""
    if world.sent:
        world.send(world.sent[(a * 13 + b) % len(world.sent)], keep=False)


def _forge(world: World, a: int, b: int) -> None:
    """Somebody guesses: another's name, a token that was not given."""
    if id := world.any(a, "claimed", "executing"):
        claimed = world.book.remediations[id].claims
        forged = (messages.Begin, messages.Complete, messages.Heartbeat)[b % 3]
        world.send(forged(id=id, by=("slurm-b", "mallory")[a % 2], token=claimed + (b % 3) - 1), keep=False)


ACTIONS: dict[str, Callable[[World, int, int], None]] = {
    "wait": _wait, "propose": _propose, "publish": _publish, "withdraw": _withdraw, "merge": _merge, "report": _report,
    "save": _save, "verify": _verify, "approve": _approve, "reject": _reject, "ask undo": _ask_undo, "hold": _hold,
    "freeze": _freeze, "close breaker": _close_breaker, "take": _take, "heartbeat": _heartbeat, "begin": _begin,
    "complete": _complete, "crash": _crash, "replay": _replay, "forge": _forge, "edit policy": _edit_policy,
    "fail early": _fail_early, "doubt": _doubt,
}  # fmt: skip
# How often each comes, so that an interleaving gets somewhere: most proposals are approved, claimed and begun.
WEIGHTS = {
    "wait": 5, "propose": 5, "publish": 1, "withdraw": 1, "merge": 1, "report": 6, "save": 2, "verify": 2, "approve": 7,
    "reject": 1, "ask undo": 4, "hold": 1, "freeze": 2, "close breaker": 1, "take": 9, "heartbeat": 1, "begin": 9,
    "complete": 7, "crash": 1, "replay": 2, "forge": 1, "edit policy": 1, "fail early": 1,
    "doubt": 1,
}  # fmt: skip


CLUMSY = WEIGHTS | {"fail early": 12, "begin": 3, "freeze": 0}  # schedulers that most often find that they cannot
CLUMSY_EVERY = 5  # interleavings


def drawn(seed: int, length: int = 80) -> list[Action]:
    """Return the interleaving of a seed."""
    lots = random.Random(seed)
    weights = WEIGHTS if seed % CLUMSY_EVERY else CLUMSY
    chosen: Sequence[str] = lots.choices(list(weights), weights=list(weights.values()), k=length)
    return [(word, lots.randrange(12), lots.randrange(60)) for word in chosen]
