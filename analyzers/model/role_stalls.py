"""Which instance of a role holds the others up, by the rules of roles and phases: pure, live and in files alike.

An instance is compared with those of its own role and with its own past, never with another role. One that waits for
another, or has nothing to do, is no suspect: the end of its chain of waits may be one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from analyzers.knowledge.role_rules import RoleRules
from analyzers.model.role_instances import Count, Instance, Seat, Speed, alike, serving, speed_of
from analyzers.model.role_look import Look, Stall
from analyzers.model.role_loops import OPENS, looping, nothing_new, saying_nothing
from analyzers.model.role_paces import slower_than_before
from analyzers.model.role_silence import ENDED, NOT_SEEN, STOPPED, Seen, renamed
from analyzers.model.role_transfers import held_up

PAST = 5.0  # times its own longest rest
LATE = 0.6  # so sure is that a trainer stands which is late and uses its processor: it may do something rare
MOST_BY_CHANCE = 6  # so few may all come late
FINE = 1.1  # readings a rest of a counter that shows work at nearly every one
MANY = 16  # requests of a server that do not all take long by chance
# Requests, and of the most that an engine ever had: all of them may be in calls that it does not state.
FEW, FEW_SHARE = 2, 0.25
_TRAINS = frozenset({"trainer", "hybrid", "critic"})  # a reference or a reward in such a phase may have nothing to do
_START = "warm_up"  # one that has finished nothing yet may compile for its first request
MOST_OF = 0.8  # of the time it was busy
LEAST_ENDED = (
    20  # calls or samples that one has to have finished before a rest is long for it: the first ones may all be
)
_WITHOUT_HEARTBEAT = frozenset({"switch", "warm_up", "checkpoint", "weight_sync"})


def stalled(
    instances: Mapping[Seat, Instance], now: float, rules: RoleRules, seen: Mapping[Seat, Seen] | None = None
) -> list[Stall]:
    """Return what holds a job up at an instant, the surest first; nothing of a healthy one, however long its tail.

    ``instances``: of ``role_instances.fold``; ``seen``: what agents saw of their processes.
    """
    look = _Search(instances, now, rules, seen or {})
    found = list(look.ended())
    for others in (look.still(), looping(look)):
        taken = {one for stall in found for one in stall.whom}
        found += [stall for stall in others if (stall.role, stall.instance) not in taken]
    found = found or [*held_up(look), *look.slow()] or [*saying_nothing(look)] or [*look.circles(), *look.overdue()]
    found = found or [*nothing_new(look)]
    behind = look.waits.behind
    counted = [replace(one, blocked=one.blocked or len(behind.get((one.role, one.instance), ()))) for one in found]
    return sorted(counted, key=lambda one: (-one.strength, -one.blocked, one.since, one.role, one.instance))


class _Search(Look):
    """A look that finds who makes no progress."""

    # -- ends: the process is gone, stopped, or neither heard nor answering -----------------------------------------

    def ended(self) -> Iterator[Stall]:
        """Yield those that are gone; a heartbeat alone that is missing in many at once is of those who listen."""
        every = list(serving(self.instances))
        silent = {} if self.silence.is_deaf() else self.silence.seconds
        quiet = [
            one for one in every if one.seat in self.silence.seconds or not self.fresh(one.seen_at) or self._gone(one)
        ]
        former = renamed(quiet, every, self.rules, self.seen)
        for one in () if self.silence.all_ended else every:
            seen = self.seen.get(one.seat, NOT_SEEN)
            if (
                (seen.ended_well and not self._is_asked_for(one))
                or one.seat in former
                or self.silence.is_former(one)
                or self._is_given_up(one, seen)
            ):
                continue
            if one.state is None and seen.state in ENDED and not self._needed(one):
                continue
            found = self._end(one, seen, silent.get(one.seat))
            if found is not None:
                yield found

    def _end(self, one: Instance, seen: Seen, silent: float | None) -> Stall | None:
        since = one.renewed_at or seen.at or one.seen_at
        if seen.killed_for_memory:
            guilty = self.instances.get(seen.leaked_by) if seen.leaked_by is not None else None
            if guilty is not None and guilty.seat != one.seat:
                why = f"{one.name} on its node was killed for memory, and {guilty.name} had grown by most of it"
                return self.stall("role_memory", guilty, since, 0.8, why, seen)
            return self.stall("role_memory", one, since, 0.75, "its process was killed for memory", seen)
        deaf = one.unanswered_since is not None and one.seen_at - one.unanswered_since >= self.bounds.unanswered_seconds
        if seen.state in ENDED or (seen.state == "gone" and (silent is not None or deaf)):
            heard = f", and was not heard for {silent:.0f} s" if silent is not None else ""
            why = f"its process has ended while the role's others need it{heard}"
            return self.stall("role_lost", one, since, 0.95, why, seen)
        rests = max(self._rests(one), seen.for_seconds)
        if seen.state in STOPPED and (silent is not None or rests >= self.bounds.heartbeat_seconds):
            return self.stall("role_lost", one, since, 0.95, f"its process is stopped (state {seen.state})", seen)
        return self._unheard(one, seen, silent, since, deaf=deaf)

    def _unheard(self, one: Instance, seen: Seen, silent: float | None, since: float, *, deaf: bool) -> Stall | None:
        """Judge one by its heartbeat and its endpoint: either may fail by itself, and a busy process may miss both."""
        if (silent is None and not deaf) or self._goes_on(one, seen):
            return None
        if silent is not None and deaf:
            why = f"it was not heard for {silent:.0f} s, and its endpoint does not answer"
            return self.stall("role_lost", one, since, 0.9, why, seen)
        if self.rules.phase_kind(one.phase) in _WITHOUT_HEARTBEAT and not (
            self.is_overdue(one) if silent is None else self.was_overdue(one)
        ):
            return None
        if deaf:
            still = self._rests(one)
            strength, what = (0.75, "and it makes no progress") if still >= self._bound(one) > 0 else (0.4, "")
            return self.stall(
                "role_lost",
                one,
                one.unanswered_since or since,
                strength,
                f"its endpoint does not answer {what}".strip(),
                seen,
            )
        strength = 0.75 if self._rests(one) >= self._bound(one) > 0 else 0.5
        return self.stall("role_lost", one, since, strength, f"it was not heard for {silent:.0f} s", seen)

    def _goes_on(self, one: Instance, seen: Seen) -> bool:
        """Whether anything shows that it works: a counter that moved lately, or a process that uses its processors."""
        counts = [count for count in (one.tokens, one.steps) if count is not None and self.fresh(count.seen_at)]
        if any(count.moved and self.now - count.since < self.bounds.heartbeat_seconds for count in counts):
            return True
        known = seen.still_seconds is not None and seen.state not in ENDED | STOPPED | {"gone"}
        return known and not counts and (seen.still_seconds or 0.0) < self.bounds.heartbeat_seconds

    def _gone(self, one: Instance) -> bool:
        return self.seen.get(one.seat, NOT_SEEN).state in ENDED | {"gone"}

    def _is_given_up(self, one: Instance, seen: Seen) -> bool:
        """Whether it was ended from outside, others of its role go on, and none waits for it by name: there are fewer now."""
        if not seen.asked_to_end or not self.rules.works_alone(one.role):
            return False
        asked = any(other.waiting_for == one.name for other in self.waits.waiting)
        return not asked and any(
            other is not one and other.seat not in self.silence.seconds and not self._gone(other)
            for other in self.waits.of_role(one.role)
        )

    def _is_asked_for(self, one: Instance) -> bool:
        """Whether another has waited for it by name for so long that nothing will come: that it ended well helps none."""
        return any(
            other.waiting_for == one.name and self._waited(other) >= self.bounds.lost_request_seconds
            for other in self.waits.waiting
        )

    def _needed(self, one: Instance) -> bool:
        """Whether anyone waits for it, or others of its role go on: one that had nothing more to do may end."""
        return bool(self.waits.behind.get(one.seat)) or any(
            other is not one and self.seen.get(other.seat, NOT_SEEN).state not in ENDED
            for other in self.waits.of_role(one.role)
        )

    # -- still: it has work, and nothing comes of it ----------------------------------------------------------------

    def still(self) -> Iterator[Stall]:
        """Yield those that have work, and make no progress; where all of a role do, the role."""
        for role in sorted({one.role for one in serving(self.instances)}):
            of_role = self.waits.of_role(role)
            found = [stall for one in of_role if (stall := self._still(one)) is not None]
            if len(found) > 1 and 2 * len(found) > len(of_role):
                yield self._of_role(found)
            else:
                yield from found

    def _still(self, one: Instance) -> Stall | None:
        bound, rests = self._bound(one), self._rests(one)
        waits = self.waits.active(one) or self.waits.fetches(one)
        if not bound or rests < bound or waits or not self.fresh(one.seen_at):
            return None
        kind = self.rules.kind(one.role)
        training = self.rules.phase_kind(one.phase) == "train" and kind in _TRAINS
        if not training and not self._loaded(one, kind):
            return None
        rule, count = self.rules.of_role(one.role), one.tokens or one.steps
        known = (
            count is not None
            and count.moved
            and (training or count.done >= LEAST_ENDED or rests >= self.bounds.tail_seconds)
        )
        past = known and count is not None and rests >= max(rule.decided_seconds, PAST * count.longest)
        peers = [other for other in self.waits.of_role(one.role) if other is not one and self.moves(other)]
        if training:
            return self._still_in_training(one, rests, past=past)
        starts = count is not None and not count.value and rests < self.rules.of_phase(_START).longest_seconds
        if starts or rests < rule.decided_seconds or not (peers or past) or self._may_still_end(one, count, rests):
            return None
        work = f"it has {one.requests_running} requests and finished nothing for {rests:.0f} s"
        than = f", while {peers[0].name} goes on" if peers else ", and never rested so long before"
        heard = ", though it is heard and answers" if one.answers or one.seat not in self.silence.seconds else ""
        engine = kind in ("rollout", "hybrid")
        fault_class = "engine_still" if engine else "tool_still" if kind == "environment" else "worker_still"
        stall = self.stall(fault_class, one, self.now - rests, 0.85 if peers else 0.75, work + than + heard)
        return stall if not self._may_work(one, count, engine=engine) else replace(stall, strength=OPENS, missing=(
            f"whether {one.name} works on long requests: it uses its processor, or has few, and its count shows none"
        ))  # fmt: skip

    def _may_work(self, one: Instance, count: Count | None, *, engine: bool) -> bool:
        """Whether its rest may be that of long requests: few are left, or it uses its processor and counts what has ended."""
        active = self.seen.get(one.seat, NOT_SEEN).still_seconds
        came = (one.requests_running or 0) + (one.requests_waiting or 0) - one.held_then
        many = engine or (one.requests_running or 0) >= MANY or came >= self.bounds.pile_least
        ends = not many or count is None or count.looks > FINE * count.rests
        busy = active is not None and active < self.bounds.heartbeat_seconds and ends
        return busy or (engine and (one.requests_running or 0) <= min(FEW, FEW_SHARE * one.most_running))

    def _still_in_training(self, one: Instance, rests: float, *, past: bool) -> Stall:
        """Return what is said of a trainer. One that waits for its peers may rest, and use its processor or not."""
        active = self.seen.get(one.seat, NOT_SEEN).still_seconds
        strength = 0.75 if past else 0.4
        if active is not None:
            strength = LATE if active < self._bound(one) else 0.4 if self._has_a_peer_at_work(one) else 0.8
        why = f"in phase {one.phase} it made no progress for {rests:.0f} s"
        return self.stall("trainer_still", one, self.now - rests, strength, why)

    def _has_a_peer_at_work(self, one: Instance) -> bool:
        """Whether another of its role uses its processor in its training phase: this one may wait for it."""
        return any(
            other is not one
            and self.rules.phase_kind(other.phase) == "train"
            and not self.waits.active(other)
            and self._rests(other) < self._bound(other)
            for other in self.waits.of_role(one.role)
        )

    def _is_late(self, one: Instance) -> bool:
        """Whether it counts its work, and has finished none for far longer than ever: a process that spins is busy too."""
        count = one.tokens or one.steps
        if count is None or not count.moved or not self.fresh(count.seen_at):
            return False
        return count.still_seconds >= max(self._bound(one), PAST * count.longest)

    def _may_still_end(self, one: Instance, count: Count | None, rests: float) -> bool:
        """Whether its role counts what has ended, and this has taken no longer yet than the work of others did."""
        counts = [other.tokens if count is one.tokens else other.steps for other in self.waits.of_role(one.role)]
        held = max((other.held for other in counts if other is not None and other.is_coarse), default=0.0)
        return rests * max(1, one.requests_running or 0) < PAST * held

    def _loaded(self, one: Instance, kind: str) -> bool:
        """Whether it has work of which something has to come. Few long calls are the tail of a step, and no fault."""
        running = one.requests_running or 0
        if kind in ("rollout", "hybrid"):  # one that counts finished requests alone says nothing during a long one
            return running > (0 if one.tokens is not None else 1)
        pile = running + (one.requests_waiting or 0)
        many = max(self.bounds.pile_least, self.bounds.pile_share * one.most_running)
        came = pile - one.held_then  # since it last finished one: those that come are not all long
        return running > 0 and (
            pile >= many or came >= self.bounds.pile_least or self._rests(one) >= self.bounds.tail_seconds
        )

    def _of_role(self, found: list[Stall]) -> Stall:
        """Several of a role rest alike: which of them holds up the others is not for their role to say."""
        first = min(found, key=lambda stall: stall.since)
        seats = tuple((stall.role, stall.instance) for stall in found)
        why = f"{len(found)} of its instances rest alike: {first.instance} {first.why}"
        strength = max(stall.strength for stall in found)
        strength = strength if first.fault_class == "trainer_still" else min(0.6, strength)
        return replace(first, instance="", strength=strength, why=why, seats=seats)

    def _rests(self, one: Instance) -> float:
        """Return for how long it is known to have made no progress; 0 where nothing shows it."""
        known = [
            _still_seconds(count, one.last_token_at if count is one.tokens else None)
            for count in (one.tokens, one.steps)
            if count is not None and self.fresh(count.seen_at)
        ]
        active = self.seen.get(one.seat, NOT_SEEN).still_seconds
        if self.rules.phase_kind(one.phase) == "train" and active is not None and not self._is_late(one):
            known.append(active)
        rests = min(known, default=0.0)
        if one.requests_running is not None:  # what it did not do while it had nothing to do shows nothing
            rests = min(rests, one.seen_at - one.busy_since) if one.busy_since is not None else 0.0
        if one.phase_since is not None and one.phase and self.rules.phase_kind(one.phase):
            rests = min(rests, max(0.0, self.now - one.phase_since))
        return rests

    def _bound(self, one: Instance) -> float:
        """Return how long it may rest in its phase before it is a suspect; 0: for ever."""
        phase = self.rules.phase_kind(one.phase)
        if self.rules.of_phase(one.phase).awaits:
            return 0.0
        return self.rules.of_role(one.role).still.get(phase, 0.0)

    # -- speed, circles, phases ------------------------------------------------------------------------------------

    def slow(self) -> Iterator[Stall]:
        """Yield those that do far less than their peers, or than before, with as many requests or with more."""
        for role in sorted({one.role for one in serving(self.instances)}):
            seconds, every = self.rules.of_role(role).slow_seconds, self.waits.of_role(role)
            speeds = {one.seat: speed for one in every if (speed := speed_of(one, self.now - seconds)) is not None}
            found = [stall for one in every if (stall := self._slower(one, speeds, seconds)) is not None]
            yield from found if len(found) < 2 or 2 * len(found) < len(speeds) else [self._of_role(found)]
            if self.rules.kind(role) == "trainer":  # of others the work of a step varies with what they are asked
                yield from self._slowed(every, seconds)

    def _slowed(self, every: Sequence[Instance], seconds: float) -> Iterator[Stall]:
        paces = {one.seat: one.paces for one in every if self.fresh(one.seen_at)}
        for seat, change in slower_than_before(paces, seconds, self.bounds.slow_factor):
            one = self.instances[seat]
            beside = f"and its peers at most {change.beside:.1f} times"
            why = f"it works {change.times:.1f} times as long at a step as before, {beside}"
            yield self.stall("role_slow", one, change.at, 0.6 + 0.1 * bool(self.waits.behind.get(seat)), why)

    def _works_on(self, one: Instance, seconds: float) -> bool:
        count = one.tokens or one.steps
        moved = count is not None and count.moved and self.fresh(count.seen_at)
        return moved and self._rests(one) < max(60.0, 0.5 * seconds)

    def _slower(self, one: Instance, speeds: Mapping[Seat, Speed], seconds: float) -> Stall | None:
        since, own = self.now - seconds, speed_of(one, self.now - seconds, least=0)
        if own is None or one.began_at > since or not self._works_on(one, seconds):
            return None
        waited, waits = 0.1 * bool(self.waits.behind.get(one.seat)), self.waits.active(one)
        compared = one.tokens is not None and not one.tokens.is_coarse and own.busy >= MOST_OF
        compared = compared and (own.work is not None or not waits)  # a wait is no work of its own
        most = self._least_of_peers(one, own, speeds) if compared else 0.0
        if most:
            like = f" on {one.hardware}" if one.hardware else ""
            why = f"it does {most / max(own.a_request, 1e-9):.1f} times less a request than any peer with as many{like}"
            return self.stall("role_slow", one, since, 0.6 + waited, why)
        if waits or one.piled_since is None or one.piled_since > since:
            return None
        # With requests that wait it does all that it can: others that do more have fewer, and so had it itself.
        peers = (
            other
            for other in self.waits.of_role(one.role)
            if other.piled_since is None and other.hardware == one.hardware
        )
        free = [speeds[other.seat] for other in peers if other.seat in speeds]
        before = speed_of(one, 0.0, one.piled_since)
        most = max((speed.a_second for speed in (*free, *([before] if before else ()))), default=0.0)
        if own.a_second * self.bounds.piled_factor < most and most * seconds > MOST_BY_CHANCE:
            less = most / max(own.a_second, 1e-9)
            why = f"it does {less:.1f} times less than without requests that wait, and {one.requests_waiting} wait"
            return self.stall("role_slow", one, since, 0.6 + waited, why)
        return None

    def _least_of_peers(self, one: Instance, own: Speed, speeds: Mapping[Seat, Speed]) -> float:
        """Return the least that a peer with as many requests does a request; 0 with fewer than two, or where it is no less."""
        near = list[float]()
        for other in self.waits.of_role(one.role):
            if other is not one and other.seat in speeds and alike(other, one):
                if not own.is_less(speeds[other.seat], self.bounds.slow_factor, self.bounds.piled_factor):
                    return 0.0  # of thousands the first few decide
                near.append(speeds[other.seat].a_request)
        return min(near) if len(near) > 1 else 0.0

    def circles(self) -> Iterator[Stall]:
        """Yield where every chain of waits leads back: what they wait for was lost. The work's owner is its controller."""
        if any(self.moves(one) or one.requests_running or self._works(one) for one in serving(self.instances)):
            return
        long = [one for one in self.waits.waiting if self._waited(one) >= self.bounds.lost_request_seconds]
        for one in sorted(
            long, key=lambda one: (self.rules.of_role(one.role).restart != "job", one.role, one.instance)
        ):
            ends, unseen = self.waits.ends(one)
            if unseen or any(not self._nothing_to_do(end) for end in ends):
                continue
            what = "none of those has anything to do" if ends else "what it waits for waits for it"
            why = f"it waits for {one.waiting_for} for {self._waited(one):.0f} s, and {what}"
            yield self.stall("lost_request", one, self.now - self._waited(one), 0.7, why)
            return

    def _works(self, one: Instance) -> bool:
        """Whether it waits for nothing and does not say that it has nothing to do: any queue may be its to fill."""
        return not self.waits.active(one) and not self._nothing_to_do(one) and not self.rules.of_phase(one.phase).awaits

    def _nothing_to_do(self, one: Instance) -> bool:
        """Whether it says so itself; that it finishes nothing may be the tail of a step."""
        return self.fresh(one.spoke_at) and one.idle and not self.rules.of_phase(one.phase).works and bool(one.phase)

    def _waited(self, one: Instance) -> float:
        return self.now - one.waiting_since if one.waiting_since is not None else 0.0

    def overdue(self) -> Iterator[Stall]:
        """Yield those that have been in a phase for longer than it may take."""
        for one in serving(self.instances):
            syncs = self.rules.phase_kind(one.phase) == "weight_sync"
            if self.is_overdue(one) and not syncs and not self.waits.active(one) and not self.moves(one):
                why = f"it has been in phase {one.phase} for {self.now - (one.phase_since or 0.0):.0f} s"
                yield self.stall("phase_overdue", one, one.phase_since or self.now, 0.4, why)


def _still_seconds(count: Count, last_token_at: float | None) -> float:
    if last_token_at is None:
        return count.still_seconds
    return max(0.0, count.seen_at - max(count.since, last_token_at)) if count.moved else count.seen_at - last_token_at
