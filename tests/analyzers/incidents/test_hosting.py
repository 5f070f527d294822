"""Which node hosts which rank: the first claim holds, a job moves as a whole, and a stranger's word begins no attempt."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from analyzers.incidents.hosting import HELD_SECONDS, Hosting
from analyzers.incidents.rank_maps import own_ranks
from collectors.records import LogEvent, Members, Placement, ProcessState

NODES = {"n0": (0, 1), "n1": (2, 3), "n2": (4, 5)}
DECLARED = ("n0.cluster", "n0.cluster", "n1", "n1", "n2", "n2")


def placement(
    node: str, ranks: Iterable[int], attempt: int | None = 1, world: int | None = 6, pid: int = 100
) -> Placement:
    """Return what an agent tells of its ranks."""
    ranks = tuple(ranks)
    return Placement(
        job="run", attempt=attempt, ranks=Members.of(ranks), nodes=(node,) * len(ranks), world_size=world,
        pids=tuple(pid + rank for rank in ranks),
    )  # fmt: skip


def running(at: float = 0.0) -> Hosting:
    """Return a job on three nodes."""
    hosting = Hosting()
    for node, ranks in NODES.items():
        hosting.take(node, [placement(node, ranks)], at)
    return hosting


def keep(hosting: Hosting, at: float, *nodes: str, attempt: int = 1, pid: int = 100) -> None:
    """Let nodes show life."""
    for node in nodes:
        hosting.take(node, [placement(node, NODES[node], attempt, pid=pid)], at)


def hosts(hosting: Hosting, attempt: int | None = 1) -> dict[int, list[str]]:
    """Return each rank's hosts."""
    return {rank: [node for _, node in found] for rank, found in sorted(hosting.maps[attempt].by_rank.items())}


def test_the_first_claim_holds() -> None:
    """A stranger that claims a rank of a job that goes on gets nothing, however long and loudly it claims."""
    hosting = running()
    for at in range(10, 1_000, 10):
        keep(hosting, at, *NODES)
        hosting.take("stranger", [placement("stranger", range(6), pid=900)], at)

    assert not hosting.is_host("stranger", 1)
    assert hosting.refused("stranger", 1) == {(rank, "") for rank in range(6)}
    assert hosts(hosting)[0] == ["n0"]
    assert hosting.is_hearsay(LogEvent(event="exit", rank=3), "stranger", 1)
    assert not hosting.is_hearsay(LogEvent(event="exit", rank=3), "n1", 1)


def test_a_host_claims_no_rank_of_others_without_an_attempt() -> None:
    """What it says of no attempt is read with the running one: of the ranks in it, others host 0, and 7 no node."""
    hosting = running()
    hosting.take("n2", [placement("n2", (0, 4, 7), attempt=None)], 10)

    assert hosting.refused("n2", 1) == {(0, "")}
    assert hosts(hosting)[0] == ["n0"]


@pytest.mark.parametrize(("job", "stranger"), [(1, None), (None, 1)])
def test_a_host_that_changes_its_attempt_claims_no_rank_of_others(job: int | None, stranger: int | None) -> None:
    """Its claim of the running attempt is over; its words of no attempt, or of a job without one, are still read with it."""
    hosting = Hosting()
    for node, ranks in NODES.items():
        hosting.take(node, [placement(node, ranks, attempt=job)], 0)
    for at in range(10, 300, 10):
        for node in ("n0", "n1"):
            hosting.take(node, [placement(node, NODES[node], attempt=job)], at)
        hosting.take("n2", [placement("n2", (0, 4), attempt=stranger)], at)

    assert hosting.claims["n2"].attempt == stranger
    assert hosting.refused("n2", job) == {(0, "")}
    assert hosts(hosting, job)[0] == ["n0"]


def test_a_dead_nodes_ranks_are_not_given_away() -> None:
    """A node is silent for good while the others stand and wait for it: nobody takes its ranks."""
    hosting = running()
    for at in range(10, 2_000, 10):
        keep(hosting, at, "n0", "n1")
        hosting.take("stranger", [placement("stranger", (4, 5))], at)

    assert hosts(hosting)[4] == ["n2"]


def test_a_job_that_begins_anew_elsewhere_is_followed() -> None:
    """The others' processes are younger than the silence of the lost node: its ranks are where they are claimed now."""
    hosting = running()
    keep(hosting, 60, "n0", "n1", pid=500)
    for at in range(70, 300, 10):
        keep(hosting, at, "n0", "n1", pid=500)
        hosting.take("spare", [placement("spare", (4, 5), pid=500)], at)

    assert hosts(hosting)[4] == ["spare"]
    assert hosting.refused("n2", 1) == {(4, ""), (5, "")}


def test_a_later_attempt_begins_with_half_of_its_nodes() -> None:
    """One node's word is no new attempt; that of half of them is, and then a spare that came early is in it."""
    hosting = running()
    hosting.take("stranger", [placement("stranger", range(6), attempt=99)], 10)
    hosting.take("spare", [placement("spare", (4, 5), attempt=2)], 11)
    hosting.take("n0", [placement("n0", (2, 3), attempt=2)], 12)
    assert hosting.attempt == 1

    hosting.take("n1", [placement("n1", (0, 1), attempt=2)], 13)

    assert hosting.attempt == 2
    assert hosts(hosting, 2) == {0: ["n1"], 1: ["n1"], 2: ["n0"], 3: ["n0"], 4: ["spare"], 5: ["spare"]}
    assert "spare" in hosting.admitted
    assert hosting.is_host("n2", 1)


def test_members_of_the_last_attempt_come_before_a_stranger() -> None:
    """A stranger that has claimed the next attempt of all ranks since long loses each to the node that was there before."""
    hosting = running()
    hosting.take("stranger", [placement("stranger", range(6), attempt=2)], 1)
    keep(hosting, 30, *NODES, attempt=2)

    assert hosting.attempt == 2
    assert hosts(hosting, 2) == hosts(running())


@pytest.mark.parametrize(("strangers", "begins"), [(1, False), (2, True)])
def test_a_job_that_is_gone_may_begin_on_other_nodes(strangers: int, begins: bool) -> None:
    """A requeued job may get other nodes altogether: as many as half of those it had are believed after a while."""
    hosting = running()
    for at in range(20, int(2 * HELD_SECONDS) + 40, 10):
        for number in range(strangers):
            hosting.take(f"new-{number}", [placement(f"new-{number}", (2 * number, 2 * number + 1), attempt=2)], at)

    assert (hosting.attempt == 2) is begins


def test_who_takes_a_dead_job_for_its_own_gives_it_back() -> None:
    """A stranger alone is as many as half of one node: the job's own node begins its next attempt at once, and keeps it."""
    hosting = Hosting()
    hosting.take("own", [placement("own", (0, 1), world=2)], 0.0)
    for at in range(20, int(2 * HELD_SECONDS) + 40, 10):
        hosting.take("stranger", [placement("stranger", (0, 1), attempt=99, world=2)], at)
    assert hosting.attempt == 99

    hosting.take("own", [placement("own", (0, 1), attempt=2, world=2, pid=500)], 300.0)
    for at in range(300, 900, 10):
        hosting.take("own", [placement("own", (0, 1), attempt=2, world=2, pid=500)], at)
        hosting.take("stranger", [placement("stranger", (0, 1), attempt=100, world=2)], at)
    assert (hosting.attempt, hosts(hosting, 2)) == (2, {0: ["own"], 1: ["own"]})


def test_who_left_a_job_does_not_take_it_back_from_more() -> None:
    """A job that was begun anew on other nodes is theirs: a single node of the run before is too few to take it from three."""
    hosting = running()
    for at in range(20, int(2 * HELD_SECONDS) + 40, 10):
        for number in range(3):
            hosting.take(f"new-{number}", [placement(f"new-{number}", (2 * number, 2 * number + 1), attempt=2)], at)
    assert hosting.attempt == 2
    hosting.take("n0", [placement("n0", (0, 1), attempt=3)], 230.0)

    assert hosting.attempt == 2


def test_a_rank_beyond_the_world_is_nobodys() -> None:
    """A job of six ranks has no seventh, whoever claims it and whatever size it states."""
    hosting = running()
    hosting.take("stranger", [placement("stranger", (6, 7), world=1_000)], 5)

    assert not hosting.is_host("stranger", 1)


def test_two_roles_may_have_one_number() -> None:
    """A trainer 0 and a rollout 0 are two ranks; a rank without a role leaves no room for either."""
    hosting = Hosting()
    for node, role in (("a", "trainer"), ("b", "rollout"), ("c", "")):
        one = placement(node, (0,), world=None)
        hosting.take(node, [Placement(**{f: getattr(one, f) for f in one.__struct_fields__} | {"roles": (role,)})], 1)

    assert hosts(hosting) == {0: ["a", "b"]}


def test_a_declared_map_goes_before_every_claim() -> None:
    """A stranger came first; the node that was declared gets its rank when it comes, under its short name too."""
    hosting = Hosting()
    hosting.declare(1, DECLARED, 0)
    hosting.take("stranger", [placement("stranger", range(6))], 0)
    for node, ranks in NODES.items():
        hosting.take(node, [placement(node, ranks)], 1)
    hosting.take("stranger", [placement("stranger", range(6))], 200)

    assert hosts(hosting) == hosts(running())


def test_a_map_that_is_declared_later_moves_the_ranks() -> None:
    """A stranger holds ranks that were free, and the declaration comes; when it is taken back, who hosts them hosts them."""
    hosting = Hosting()
    hosting.take("stranger", [placement("stranger", range(6))], 0)
    keep(hosting, 1, *NODES)
    assert not hosting.is_host("n0", 1)

    hosting.declare(1, DECLARED, 2)
    assert hosts(hosting) == hosts(running())
    hosting.declare(1, (), 3)
    keep(hosting, 4, *NODES)
    assert hosts(hosting) == hosts(running())


def test_a_rank_that_ended_is_kept_for_its_declared_node() -> None:
    """While the node runs the rest of what was declared for it; a silent node's are another's once the job began anew."""
    hosting = running()
    hosting.declare(1, DECLARED, 0)
    hosting.take("n2", [placement("n2", (4,))], 10)
    hosting.take("stranger", [placement("stranger", (5,))], 11)
    assert hosting.refused("stranger", 1) == {(5, "")}

    keep(hosting, 12 + HELD_SECONDS, "n0", "n1")
    hosting.take("stranger", [placement("stranger", (5,))], 12 + HELD_SECONDS)
    assert hosting.refused("stranger", 1) == {(5, "")}  # the others have gone on: they have lent it no rank

    keep(hosting, 13 + HELD_SECONDS, "n0", "n1", pid=500)
    hosting.take("stranger", [placement("stranger", (5,))], 13 + HELD_SECONDS)
    assert hosts(hosting)[5] == ["stranger"]


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_wrong_map_takes_no_rank_from_its_node(attempt: int) -> None:
    """The owner declared the nodes in another order, or of another attempt: each node hosts what it runs."""
    hosting = Hosting()
    hosting.declare(attempt, [*DECLARED[2:], *DECLARED[:2]], 0)
    keep(hosting, 1, *NODES)
    keep(hosting, 2, *NODES)

    assert hosts(hosting) == hosts(running())


def test_a_name_in_another_domain_takes_no_rank() -> None:
    """A node that calls itself as the declared one, in a domain of its own, came later: the declaration decides nothing."""
    hosting = Hosting()
    hosting.declare(1, DECLARED, 0)
    keep(hosting, 1, *NODES)
    hosting.take("n0.elsewhere", [placement("n0.elsewhere", (0, 1))], 2)

    assert hosts(hosting) == hosts(running())


def test_without_numbers_of_attempts_the_first_is_declared() -> None:
    """Agents may see no number of an attempt."""
    hosting = Hosting()
    hosting.declare(0, DECLARED, 0)
    hosting.take("stranger", [placement("stranger", range(6), attempt=None)], 0)
    for node, ranks in NODES.items():
        hosting.take(node, [placement(node, ranks, attempt=None)], 1)

    assert hosts(hosting, None) == hosts(running())


def test_a_run_that_counts_from_nought_again_is_seen() -> None:
    """A job that is submitted again under its name begins with attempt 0 on the same nodes."""
    hosting = running()
    for node, ranks in NODES.items():
        hosting.take(node, [placement(node, ranks, attempt=0)], 2 * HELD_SECONDS)

    assert hosting.attempt == 0


def test_signs_of_processes_are_claims_before_a_placement_comes() -> None:
    """After a restart of the engine the log may begin between two placements: the states of processes say as much."""
    hosting = Hosting()
    hosting.take("n0", [ProcessState(job="run", attempt=1, rank=0, pid=7, state="S")], 1)
    hosting.take("stranger", [placement("stranger", (0,))], 2)

    assert hosts(hosting) == {0: ["n0"]}


def test_own_ranks_keep_their_columns() -> None:
    """What is taken out of a placement is taken out of all its columns."""
    kept = own_ranks(placement("n0", (0, 1, 2)), {(1, "")})

    assert kept.ranks is not None
    assert (kept.ranks.ranks(), kept.pids, kept.nodes) == ((0, 2), (100, 102), ("n0", "n0"))
