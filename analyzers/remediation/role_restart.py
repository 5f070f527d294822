"""Restarting one role of a job, or one instance of it, while the others go on: what, where, and when the whole job instead.

The role's state lies outside it: trajectories with the controller, weights in a checkpoint of each step. So a rollout, a reward
or a tool is replaced alone, and the ranks of a trainer together, because they are one process group. Where the machine is at
fault the role leaves it, for a standby; a trainer also for the machine of a rollout, which is given up: rollouts hold no state
that only they have. [RobustRL, arXiv 2512.22492: isolated restarts, its three guards, rollouts as the trainer's reserve]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from statistics import median_low
from typing import Annotated, Literal

import msgspec

from analyzers.knowledge.role_rules import RoleRules
from analyzers.model.doc import doc
from analyzers.model.role_waits import MOST_AHEAD
from analyzers.model.verdict import TAKES_NODES, Verdict

GROUPED = frozenset({"trainer", "hybrid", "critic"})
"""Kinds of roles whose ranks are one process group, which a lost rank breaks."""
ROLLOUT = "rollout"
MOST_FAILED = 2  # restarts of a role in a row that did not bring it back
MOST_AGAIN, AGAIN_SECONDS = 3, 3_600.0  # restarts of an instance that came back, where no step says whether it gets on
MOST_IN_STEP = 3  # restarts within one step, each of another instance: then the step itself is at fault


GONE = frozenset({"lost", "fenced"})


class RoleInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a role, as the directory of roles has it."""

    role: str
    instance: str
    epoch: int = 0
    node: str | None = None
    state: Literal["serving", "left", "lost", "fenced"] = "serving"  # lost: its lease is over
    registered_at: float = 0.0  # under this epoch
    weights: int | None = None  # the version that it has: a trainer's is the number of steps that are done
    first_weights: int | None = None  # … that it had first under this epoch
    worked: bool | None = None  # whether a counter of its own has grown under this epoch; None: none was ever stated

    @property
    def serving(self) -> bool:
        """Whether it holds its place."""
        return self.state == "serving"


class PastRestart(msgspec.Struct, frozen=True, kw_only=True):
    """A restart of a role in this attempt that was begun."""

    role: str
    step: int | None = None  # that was done when it was asked for
    instances: tuple[str, ...] = ()
    seconds_ago: float = 0.0  # when it was begun, before the newest word of the job's roles
    outcome: Literal["cured", "failed", "pending"] = "pending"


class RoleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job's roles; ``past`` with the oldest first."""

    instances: tuple[RoleInstance, ...] = ()
    past: tuple[PastRestart, ...] = ()
    standbys: tuple[str, ...] = ()  # free nodes that may take a role's place
    kinds: dict[str, str] = {}  # node → hardware and data centre; equal texts may stand in for each other
    reserve: int = 0  # the largest parallel size: so many machines may leave a trainer together; 0: none is declared
    since: float | None = None  # when the trouble began
    rules: RoleRules = RoleRules()  # what a role's name means: a job may call its trainer "policy"

    @property
    def step(self) -> int | None:
        """The number of steps that are done; None: no instance says it.

        The trainers count it, and the others follow. One whose version has grown under its epoch is believed before one
        that said a number once; of several the median, so that one instance decides nothing.
        """
        most = self.most_believed
        said = [one for one in self.instances if one.weights is not None and one.weights <= most]
        trainers = [one for one in said if self.is_grouped(one.role)]
        for of in (list(filter(_has_grown, trainers)), trainers, list(filter(_has_grown, said)), said):
            if of:
                return median_low(one.weights or 0 for one in of)
        return None

    @property
    def most_believed(self) -> float:
        """The highest version that is near those that grow; where none grows, any is believed."""
        grown = [one.weights or 0 for one in self.instances if _has_grown(one)]
        return median_low(grown) + MOST_AHEAD if grown else float("inf")

    def of(self, role: str) -> list[RoleInstance]:
        """Return the instances of a role."""
        return [one for one in self.instances if one.role == role]

    def is_management(self, role: str) -> bool:
        """Whether a role knows how far the others are: without it none of those can go on."""
        return self.rules.of_role(role).restart == "job"

    def is_grouped(self, role: str) -> bool:
        """Whether the ranks of a role are one process group."""
        return self.rules.kind(role) in GROUPED

    def is_rollout(self, role: str) -> bool:
        """Whether a role generates."""
        return self.rules.kind(role) == ROLLOUT

    @property
    def has_trainers(self) -> bool:
        """Whether any role's ranks are one process group, which needs a reserve."""
        return any(self.is_grouped(one.role) for one in self.instances)

    @property
    def reserve_role(self) -> str:
        """The role whose machines may become a trainer's: that of the most rollouts."""
        serving = Counter(one.role for one in self.instances if one.serving and self.is_rollout(one.role))
        return max(sorted(serving), key=lambda role: serving[role], default=ROLLOUT)


class RoleRestart(msgspec.Struct, frozen=True, kw_only=True):
    """Which instances of a role are restarted, and where."""

    instance: Annotated[str | None, doc("The only instance that is restarted; null: those of `epochs`, or all.")] = None
    epochs: Annotated[
        dict[str, int],
        doc("Instance → the epoch to fence, as it was when this was proposed; empty: none is registered."),
    ] = {}
    nodes: Annotated[tuple[str, ...], doc("The nodes that these instances run on.")] = ()
    leaves: Annotated[tuple[str, ...], doc("Of these, the nodes that they must not be started on again.")] = ()
    onto: Annotated[
        dict[str, str], doc("Node that is left → the node to start on instead; a node without one: any other.")
    ] = {}
    gives: Annotated[tuple[str, ...], doc("Rollouts that end, because the role is started on their machine.")] = ()
    gives_role: Annotated[str, doc("The role of `gives`.")] = ROLLOUT
    reserve_short: Annotated[
        int,
        doc(
            "So many machines of standbys and rollouts are missing then that could take a trainer's place: as many as the job's "
            "largest parallel size are kept for that. 0: none, or no size is declared."
        ),
    ] = 0
    step: Annotated[int | None, doc("How many steps the job had done; null: unknown.")] = None
    number: Annotated[int, doc("Which restart of the role in this attempt it is, from 1.")] = 1
    at_work: Annotated[
        float | None, doc("The share of the job's machines whose rollouts go on meanwhile; null: none are registered.")
    ] = None


class RoleOption(msgspec.Struct, frozen=True, kw_only=True):
    """A possible restart of a role. ``bar``: why it must not be chosen."""

    role: str
    restart: RoleRestart
    bar: str = ""


def role_options(verdict: Verdict, facts: RoleFacts) -> Iterator[RoleOption]:
    """Yield the restarts of the role that a verdict names: in its place, and away from a machine that is to be taken out."""
    if (found := _target(verdict, facts)) is None:
        return
    role, chosen = found
    restart = RoleRestart(
        instance=chosen[0].instance if len(chosen) == 1 else None if chosen else verdict.action.instance,
        epochs={one.instance: one.epoch for one in chosen},
        nodes=tuple(sorted({one.node for one in chosen if one.node is not None})),
        step=facts.step,
        number=1 + sum(one.role == role for one in facts.past),
        at_work=share_at_work(chosen, (), facts),
    )
    bar = explain_whole_job(role, chosen, facts)
    yield RoleOption(role=role, restart=restart, bar=bar)
    out = set(verdict.action.nodes) if verdict.action.kind in TAKES_NODES else set[str]()
    if leaves := tuple(node for node in restart.nodes if node in out):
        onto, gives, problem = _place(role, leaves, facts)
        spent = {*leaves, *(() if facts.is_rollout(role) else onto.values())}  # a rollout's new machine is kept too
        moved = msgspec.structs.replace(
            restart, leaves=leaves, onto=onto, gives=gives, gives_role=facts.reserve_role,
            at_work=share_at_work(chosen, gives, facts),
            reserve_short=max(0, facts.reserve - len(kept_for_trainers(facts) - spent)) if facts.has_trainers else 0,
        )  # fmt: skip
        yield RoleOption(role=role, restart=moved, bar=bar or problem)


def explain_replaced(verdict: Verdict, facts: RoleFacts) -> str:
    """Say that what the verdict names was replaced since the trouble began, and serves; empty: it was not."""
    found = _target(verdict, facts)
    if found is None or not found[1] or facts.since is None:
        return ""
    role, chosen = found
    if not all(one.serving and one.registered_at > facts.since for one in chosen):
        return ""
    return f"{role} {', '.join(one.instance for one in chosen)} was replaced since the trouble began, and serves"


def explain_whole_job(role: str, chosen: Iterable[RoleInstance], facts: RoleFacts) -> str:
    """Say why the whole job has to be restarted in place of these instances; empty: it has not.

    What fails again by itself is not cured by restarting its role for ever: a fault in the first step, in the same step again,
    or after restarts that did not help. Rollouts fail each for itself: another one in a long step is no second failure, and
    many are, of whatever roles. Without known steps an instance that comes back and fails again and again
    is not cured either. What else is unknown bars nothing; failed restarts are always known.
    """
    if facts.is_management(role):
        return f"{role} manages the job: the others cannot go on without its state"
    failed = _failed_in_a_row(role, facts.past)
    if failed >= MOST_FAILED:
        return f"restarting {role} has failed {failed} times in a row"
    first = _first_step(role, chosen, facts)
    if first is not None and facts.step is not None and facts.step <= first:
        return f"it failed in the first step after step {first}, with which it began: that is likely to happen again"
    names = {one.instance for one in chosen}
    in_step = [one for one in facts.past if one.outcome != "failed" and one.step is not None and one.step == facts.step]
    for one in in_step:
        whole = facts.is_grouped(role) or not one.instances or not names
        if one.role == role and (whole or not names.isdisjoint(one.instances)):
            named = role if whole else f"{role} {', '.join(sorted(names.intersection(one.instances)))}"
            return f"{named} fails for the second time after step {facts.step}"
    if len(in_step) >= MOST_IN_STEP:
        return f"{len(in_step)} restarts were needed after step {facts.step} already: the step itself is at fault"
    lately = [one for one in facts.past if one.role == role and one.seconds_ago < AGAIN_SECONDS]
    again = sum(one.outcome != "failed" and not names.isdisjoint(one.instances) for one in lately)
    if facts.step is None and again >= MOST_AGAIN:
        return f"{role} was restarted {again} times within an hour, and it is not known whether any step was done since"
    return ""


def share_at_work(chosen: Collection[RoleInstance], gives: Collection[str], facts: RoleFacts) -> float | None:
    """Return the share of the machines whose rollouts go on while these instances are restarted; None: nothing is known.

    Machines of trainers and rollouts count. One that several of them share counts by its rollouts that go on; where an
    instance's machine is unknown it has one of its own. [RobustRL, arXiv 2512.22492: ETTR during a partial recovery]
    """
    machines: dict[object, list[bool]] = {}
    for one in facts.instances:
        generates = facts.is_rollout(one.role)
        if one.state == "left" or not (generates or facts.is_grouped(one.role)):
            continue
        ends = one in chosen or (one.role == facts.reserve_role and one.instance in gives)
        stays = generates and one.serving and not ends
        machines.setdefault(one.node or (one.role, one.instance), []).append(stays)
    if not machines:
        return None
    return sum(sum(stays) / len(stays) for stays in machines.values()) / len(machines)


def reserve_of(leaving: str, facts: RoleFacts) -> list[tuple[str, tuple[str, ...]]]:
    """Return the machines of rollouts alone that are like a node, each with its rollouts, the one to take first at first."""
    rollout = facts.reserve_role
    roles: dict[str, set[str]] = {}
    rollouts: dict[str, list[str]] = {}
    for one in facts.instances:
        if one.node is not None:
            roles.setdefault(one.node, set()).add(one.role)
            if one.role == rollout and one.serving:
                rollouts.setdefault(one.node, []).append(one.instance)
    alike = [node for node in rollouts if roles[node] == {rollout} and _is_like(node, leaving, facts)]
    return [
        (node, tuple(sorted(rollouts[node]))) for node in sorted(alike, key=lambda node: (len(rollouts[node]), node))
    ]


def kept_for_trainers(facts: RoleFacts) -> set[str]:
    """Return the machines that could take a trainer's place: standbys and those of rollouts alone, of a trainer's kind.

    As many as the largest parallel size are kept: the loss of one group takes so many trainers' machines at once.
    [RobustRL, arXiv 2512.22492: max(DP, TP, PP, EP, CP) homogeneous rollouts]
    """
    trainers = {one.node for one in facts.instances if one.node is not None and facts.is_grouped(one.role)}
    of_rollouts = {node for trainer in trainers for node, _ in reserve_of(trainer, facts)}
    standbys = {node for node in facts.standbys if any(_is_like(node, trainer, facts) for trainer in trainers)}
    return (of_rollouts | standbys) - trainers


def _target(verdict: Verdict, facts: RoleFacts) -> tuple[str, list[RoleInstance]] | None:
    """Return the role that the verdict names and its instances; None where it names none, or several.

    A role that the verdict's action names counts unregistered too: its scheduler finds it by its name. A rank of another node
    than an instance of its number is another process: a job may number its processes through all roles.
    """
    action = verdict.action
    if action.kind == "restart_role" and action.role:
        role, names = action.role, {action.instance} if action.instance else set[str]()
        nodes: set[str] = set()
    else:
        roles = {one.seat[0] for one in verdict.culprits}
        if len(roles) != 1 or not (role := roles.pop() or ""):
            return None
        names = {name for one in verdict.culprits for name in (one.seat[1], *one.instances) if name}
        nodes = {one.id for one in verdict.culprits if one.kind == "node"}
    known, asked = facts.of(role), action.kind == "restart_role"
    exact = [one for one in known if one.instance in names and (not nodes or one.node is None or one.node in nodes)]
    there = exact or [one for one in known if one.node in nodes]
    processes = names or any(one.ranks for one in verdict.culprits)
    if processes and not exact and not asked:  # which of its node's instances that process was, its lease shows
        there = [one for one in there if one.state in GONE]
    if facts.is_grouped(role) or not names | nodes:
        there = _all_of(known, grouped=facts.is_grouped(role)) if there or not names | nodes else []
    return (role, there) if there or (asked and not known) else None


def _all_of(known: list[RoleInstance], *, grouped: bool) -> list[RoleInstance]:
    """Return the instances of a whole role: none that has left, nor one of those that work alone which was fenced for good."""
    return [one for one in known if one.state != "left" and (grouped or one.state != "fenced")] or known


def _first_step(role: str, chosen: Iterable[RoleInstance], facts: RoleFacts) -> int | None:
    """Return the step with which the role resumed, or for one without weights of its own the attempt; None: unknown."""
    of = chosen if facts.is_grouped(role) else facts.instances
    most = facts.most_believed
    return min((first for one in of if (first := one.first_weights) is not None and first <= most), default=None)


def _has_grown(one: RoleInstance) -> bool:
    """Whether its version has grown under its epoch: it counts, and did not only say what it began with."""
    return one.weights is not None and one.first_weights is not None and one.weights > one.first_weights


def _failed_in_a_row(role: str, past: Iterable[PastRestart]) -> int:
    count = 0
    for one in past:
        if one.role == role and one.outcome != "pending":
            count = count + 1 if one.outcome == "failed" else 0
    return count


def _place(role: str, leaves: Collection[str], facts: RoleFacts) -> tuple[dict[str, str], tuple[str, ...], str]:
    """Return for each node that is left the one in its place, the rollouts that give theirs, and what is missing."""
    onto: dict[str, str] = {}
    gives: list[str] = []
    kept = set[str]() if facts.is_grouped(role) or facts.is_rollout(role) else kept_for_trainers(facts)
    for node in leaves:
        scarce = kept if len(kept.difference(onto.values())) <= facts.reserve else ()  # a light role runs anywhere
        free = (one for one in facts.standbys if one not in onto.values() and one not in scarce)
        standby = next((one for one in free if _is_like(one, node, facts)), None)
        if standby is not None:
            onto[node] = standby
            continue
        if not facts.is_grouped(role):
            if {one.node for one in facts.instances} <= {*leaves, None}:
                return {}, (), f"there is no other machine for {role}: declare a standby"
            continue  # any other: it is light
        left = [one for one in reserve_of(node, facts) if one[0] not in (*onto.values(), *leaves)]
        serving = sum(one.serving for one in facts.of(facts.reserve_role)) - len(gives)
        if not left or serving <= len(left[0][1]):  # the last rollouts stay: without them the trainer waits for ever
            least = max(facts.reserve, 1)
            return {}, (), f"no standby and no rollout to spare is like {node}: keep {least} rollouts on such machines"
        machine, instances = left[0]
        onto[node] = machine
        gives += instances
    return onto, tuple(gives), ""


def _is_like(node: str, other: str, facts: RoleFacts) -> bool:
    """Whether a machine may take the place of another: the same hardware and data centre, as far as any are known."""
    return facts.kinds.get(node) == facts.kinds.get(other)
