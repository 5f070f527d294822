"""The directory of roles: one holder a slot, and a peer that never takes from a former one again."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from service.roles import directory as roles
from service.roles.directory import Directory, Fence, Leave, Register, RegistrationRefused, Renew

LEASE = 30.0


def _register(process: str, **more: object) -> Register:
    return Register(role="rollout", instance="3", process=process, lease_seconds=LEASE, **more)  # type: ignore[arg-type]


def _held(process: str = "a", at: float = 0.0) -> Directory:
    return roles.step(Directory(), _register(process), at, 0.0)


def _the(directory: Directory) -> roles.Slot:
    return directory.slots[roles.key("rollout", "3")]


def _refusal(directory: Directory, event: roles.Event, at: float, listening_since: float = 0.0) -> RegistrationRefused:
    with pytest.raises(RegistrationRefused) as refused:
        roles.step(directory, event, at, listening_since)
    return refused.value


def test_a_slot_is_given_once_a_time() -> None:
    """A second process waits for the lease, and is informed for how long; then it has a higher epoch."""
    first = _held()
    assert (_the(first).epoch, first.version) == (1, 1)
    assert (_refusal(first, _register("b"), 10.0).kind, _refusal(first, _register("b"), 10.0).seconds) == ("held", 20.0)
    second = roles.step(first, _register("b"), 31.0, 0.0)
    assert (_the(second).process, _the(second).epoch, second.version) == ("b", 2, 2)


def test_what_was_replaced_stays_out() -> None:
    """A late old process can neither renew, leave nor register, also once its replacement is dead."""
    second = roles.step(_held(), _register("b"), 31.0, 0.0)
    late: tuple[roles.Event, ...] = (
        Renew(role="rollout", instance="3", epoch=1), Leave(role="rollout", instance="3", epoch=1), _register("a"),
    )  # fmt: skip
    for event in late:
        assert _refusal(second, event, 32.0).kind == "fenced"
        assert _refusal(second, event, 500.0).kind == "fenced"


def test_only_the_holder_renews() -> None:
    """Another process that has read the epoch in the directory, or a child that was given it, writes nothing under it."""
    first = _held()
    other = Renew(role="rollout", instance="3", epoch=1, process="b", endpoints={"http": "elsewhere"})
    assert _refusal(first, other, 1.0).kind == "fenced"
    own = roles.step(first, replace(other, process="a"), 1.0, 0.0)
    assert _the(own).endpoints == {"http": "elsewhere"}


def test_a_fenced_holder_is_replaced_at_once() -> None:
    """A fence ends the holder before its lease does; it names the epoch that it means, so a late one hits nobody."""
    fence = Fence(role="rollout", instance="3", epoch=1)
    fenced = roles.step(_held(), fence, 1.0, 0.0)
    assert _refusal(fenced, Renew(role="rollout", instance="3", epoch=1), 1.0).kind == "fenced"
    second = roles.step(fenced, _register("b"), 1.0, 0.0)
    assert _the(second).epoch == 2
    assert _refusal(second, fence, 2.0).kind == "fenced"


def test_a_lost_answer_is_no_second_registration() -> None:
    """The same process gets the same epoch again; a renewal that changes nothing wakes no watcher."""
    first = _held()
    again = roles.step(first, _register("a"), 5.0, 0.0)
    assert (_the(again).epoch, again.version, _the(again).renewed_at) == (1, 1, 5.0)
    trained = roles.step(again, Renew(role="rollout", instance="3", epoch=1, weights=7), 6.0, 0.0)
    assert (_the(trained).weights, trained.version) == (7, 2)
    phased = roles.step(trained, Renew(role="rollout", instance="3", epoch=1, phase="generate"), 7.0, 0.0)
    assert (_the(phased).phase, phased.version) == ("generate", 2)


def test_a_service_that_was_away_ends_no_lease() -> None:
    """Holders renew again after an outage; only those that do not are replaced."""
    first = _held()
    assert _refusal(first, _register("b"), 1_000.0, listening_since=990.0).seconds == pytest.approx(20.0)
    assert _the(roles.step(first, _register("b"), 1_021.0, 990.0)).epoch == 2


def test_a_later_attempt_takes_the_slot_at_once() -> None:
    """The processes of an attempt are over when those of the next register, and an earlier attempt comes too late."""
    second = roles.step(_held(), _register("b", attempt=1), 1.0, 0.0)
    assert (_the(second).epoch, _the(second).attempt) == (2, 1)
    assert _refusal(second, _register("c", attempt=0), 500.0).kind == "fenced"


def test_a_process_that_left_stays_out() -> None:
    """After an orderly end a late heartbeat of the same process brings nothing back; its end may be repeated."""
    left = roles.step(_held(), Leave(role="rollout", instance="3", epoch=1), 1.0, 0.0)
    assert _refusal(left, Renew(role="rollout", instance="3", epoch=1), 2.0).kind == "fenced"
    assert roles.step(left, Leave(role="rollout", instance="3", epoch=1), 2.0, 0.0) is left
    assert _the(roles.step(left, _register("b"), 2.0, 0.0)).epoch == 2


def test_work_is_a_counter_that_grows_under_the_present_epoch() -> None:
    """Its first word may be that of a checkpoint; one that states no counter says nothing. A replacement is to state its own."""
    said = (None, 40, 40, 41, 41)
    directory, seen = _held(), []
    for steps in said:
        does = roles.Activity(steps_total=steps)
        directory = roles.step(directory, Renew(role="rollout", instance="3", epoch=1, activity=does), 1.0, 0.0)
        seen.append(_the(directory).worked)
    assert seen == [None, False, False, True, True]
    assert _the(roles.step(directory, _register("b"), 99.0, 0.0)).worked is False


class Peer:
    """A resource that others write to: it refuses epochs below the highest that it has seen. ``known``: its copy."""

    def __init__(self) -> None:
        self.highest = 0
        self.taken: list[tuple[int, str]] = []

    def write(self, epoch: int, process: str) -> None:
        if epoch >= self.highest:
            self.highest = epoch
            self.taken.append((epoch, process))


class World(RuleBasedStateMachine):
    """Processes of one slot that pause, come late and are replaced; peers behind partitions; a service that is killed."""

    step = staticmethod(roles.step)

    def __init__(self) -> None:
        super().__init__()
        self.directory, self.at, self.since = Directory(), 0.0, 0.0
        self.held: dict[str, int] = {}  # process → the epoch that it believes in
        self.ever: dict[int, str] = {}  # epoch → the process that was given it
        self.peers = [Peer(), Peer()]
        self.cut: set[int] = set()
        self.started = 0

    def apply(self, event: roles.Event) -> bool:
        try:
            self.directory = self.step(self.directory, event, self.at, self.since)
        except RegistrationRefused:
            return False
        return True

    @rule(seconds=st.sampled_from([1.0, 12.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.at += seconds

    @rule(late=st.booleans(), which=st.integers(1, 3))
    def ask_for_the_slot(self, late: bool, which: int) -> None:
        self.started += not late
        process = f"p{which if late else self.started}"
        if self.apply(_register(process)):
            self.held[process] = _the(self.directory).epoch
            assert self.ever.setdefault(_the(self.directory).epoch, process) == process

    @rule(which=st.integers(1, 3))
    def renew(self, which: int) -> None:
        if epoch := self.held.get(f"p{which}"):
            done = self.apply(Renew(role="rollout", instance="3", epoch=epoch))
            assert not done or _the(self.directory).process == f"p{which}"

    @rule(which=st.integers(1, 3))
    def leave(self, which: int) -> None:
        if epoch := self.held.get(f"p{which}"):
            self.apply(Leave(role="rollout", instance="3", epoch=epoch))

    @rule()
    def fence(self) -> None:
        self.apply(Fence(role="rollout", instance="3"))

    @rule(seconds=st.sampled_from([0.0, 60.0]))
    def kill_the_service(self, seconds: float) -> None:
        self.at += seconds
        self.since = self.at

    @rule(peer=st.integers(0, 1))
    def cut_or_heal(self, peer: int) -> None:
        self.cut ^= {peer}

    @rule()
    def watch(self) -> None:
        if slot := self.directory.slots.get(roles.key("rollout", "3")):
            for number, peer in enumerate(self.peers):
                if number not in self.cut:
                    peer.highest = max(peer.highest, slot.epoch + (slot.state != "serving"))

    @rule(which=st.integers(1, 3), peer=st.integers(0, 1))
    def write(self, which: int, peer: int) -> None:
        if epoch := self.held.get(f"p{which}"):
            self.peers[peer].write(epoch, f"p{which}")

    @invariant()
    def one_writer_an_epoch_and_none_returns(self) -> None:
        for peer in self.peers:
            epochs = [epoch for epoch, _ in peer.taken]
            assert epochs == sorted(epochs)
            assert len(set(peer.taken)) == len(set(epochs))
            processes = list(dict.fromkeys(process for _, process in peer.taken))
            assert len(processes) == len(set(epochs)), "a process wrote under two epochs"


@pytest.mark.system
def test_no_peer_takes_from_two_holders_at_once() -> None:
    """Whatever comes in whatever order: an epoch has one process, a process one epoch, and no peer goes back."""
    run_state_machine_as_test(World, settings=settings(max_examples=300, stateful_step_count=40, deadline=None))  # type: ignore[no-untyped-call]


def test_the_last_to_register_wins_loses() -> None:
    """The control, a directory that gives the slot to each that asks and counts names: a former holder comes back."""

    class Naive(World):
        @staticmethod
        def step(directory: Directory, event: roles.Event, at: float, since: float) -> Directory:
            slot = directory.slots.get(roles.key("rollout", "3"))
            if isinstance(event, Register) and slot is not None and slot.process != event.process:
                directory = replace(directory, slots={
                    key: replace(one, state="left", ended=(), process="") for key, one in directory.slots.items()
                })  # fmt: skip
            return roles.step(directory, event, at, since)

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Naive, settings=settings(max_examples=2_000, stateful_step_count=40, deadline=None, phases=[Phase.generate])
        )  # type: ignore[no-untyped-call]
