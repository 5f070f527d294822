"""Who is where and who talks to whom, inferred from what the dumps list, use or lack."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.model.topology import MOST_RANKS, Topology, dimension_of, infer
from analyzers.model.window import Window
from collectors.records import Group, LogEvent, Members, Placement, Record
from simulation.execution import Job, execute
from simulation.programs import Shape
from simulation.recorder import Recording, dumps
from tests.support.hand_made import call, dump, group


def inferred(*records: Record) -> Topology:
    """The topology of these records."""
    return infer(Window.build(records))


def placed(*nodes: str, world_size: int | None = None) -> Placement:
    """One rank a node, in order."""
    return Placement(source="hosts.txt", ranks=Members.of(range(len(nodes))), nodes=nodes, world_size=world_size)


def test_nothing_gives_an_empty_topology() -> None:
    """No records: no ranks, nodes or groups."""
    assert inferred() == Topology()


def test_ranks_up_to_the_highest_are_expected() -> None:
    """Ranks are numbered from zero: whoever is listed, placed or speaks makes those below it expected."""
    assert inferred(dump(0, [call(1)], [group("0", 0, 1, 5)])).ranks == tuple(range(6))
    assert inferred(LogEvent(event="traceback", rank=3)).ranks == (0, 1, 2, 3)
    assert inferred(placed("a", "b", world_size=4)).ranks == (0, 1, 2, 3)


def test_a_wild_rank_makes_no_million_expected() -> None:
    """A number beyond any job's size in one dump is listed as it is; nobody below it is expected for its sake."""
    wild = inferred(dump(0, [call(1)], [group("0", 0, 2**31 - 1)]))
    assert wild.ranks == (0, 2**31 - 1)
    assert len(inferred(placed("a", world_size=2**40)).ranks) == MOST_RANKS


def test_a_placement_goes_before_what_a_record_says_of_its_node() -> None:
    """The hosts file is the user's own word; where it is silent a record's node counts."""
    found = inferred(
        LogEvent(event="exit", rank=0, node="old"), LogEvent(event="exit", rank=1, node="b7"), placed("a3")
    )
    assert found.nodes == {0: "a3", 1: "b7"}
    assert (found.ranks_on("a3"), found.ranks_on("nowhere")) == ((0,), ())


def test_a_name_is_no_identity() -> None:
    """Two communicators of one name with other members, as a rank-local numbering gives them, are two."""
    found = inferred(
        dump(0, [call(1, group="1")], [group("1", 0, 1)]), dump(2, [call(1, group="1")], [group("1", 2, 3)])
    )
    assert sorted(one.members for one in found.groups) == [(0, 1), (2, 3)]
    assert len({one.key for one in found.groups}) == 2


def test_gloos_members_are_who_was_seen_using_it() -> None:
    """Nobody lists them: the users are the members, marked as inferred, and the default group is everybody."""
    lines = [call(1, group="default_pg"), call(1, group="3")]
    found = {
        one.name: one
        for one in inferred(*(dump(rank, lines[: 2 - rank % 2], [Group("3", "mesh_dp")]) for rank in range(4))).groups
    }
    assert (found["3"].members, found["3"].inferred) == ((0, 2), True)
    assert found["default_pg"].members == (0, 1, 2, 3)


def test_a_sibling_group_shows_where_a_lost_rank_belongs() -> None:
    """Four groups of one description, one short of a member: the rank without a dump completes it."""
    records = [
        dump(rank, [call(1, group=str(rank // 2))], [Group(str(rank // 2), "mesh_dp")])
        for rank in range(8)
        if rank != 5
    ]
    (short,) = (one for one in inferred(*records, placed(*"abcdefgh")).groups if one.name == "2")
    assert short.members == (4, 5)


@pytest.mark.parametrize(
    ("description", "name", "dimension"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "9", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "9", "pp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "9", "dp"),
        ("CONTEXT_PARALLEL_GROUP", "9", "cp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "9", "ep"),
        ("MODEL_PARALLEL_GROUP", "9", "model"),
        ("EMBEDDING_GROUP", "9", "embedding"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "9", "other"),
        ("mesh_tp", "9", "tp"),
        ("mesh_dp_shard", "9", "dp"),
        ("mesh_dp_shard_cp", "9", "other"),
        ("default_pg", "0", "world"),
        ("", "0", "world"),
        ("", "9", "other"),
        ("undefined", "9", "other"),
    ],
)
def test_dimensions_are_read_from_the_words_of_their_makers(description: str, name: str, dimension: str) -> None:
    """Megatron's, DeviceMesh's and torch's own descriptions are known; a combination is no dimension of its own."""
    assert dimension_of(description, name) == dimension


SIZES = st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2]))


@given(SIZES, st.sampled_from(["megatron", "mesh"]), st.integers(0, 99))
@settings(max_examples=20)
def test_a_jobs_coordinates_are_found_from_its_dumps(sizes: tuple[int, int, int], style: str, seed: int) -> None:
    """Of a simulated job every rank's tp, pp and dp are what the job was laid out as, in whatever order dumps come."""
    tp, pp, dp = sizes
    shape = Shape(tp=tp, pp=pp, dp=dp, style=style, steps=1)  # type: ignore[arg-type]
    trace = execute(Job.of(shape))
    records = list(dumps(trace, Recording((trace.idle_at + 10**9,) * shape.world)))
    random.Random(seed).shuffle(records)
    found = inferred(*records)
    for rank in range(shape.world):
        assert {name: found.coordinates[rank][name] for name in ("tp", "pp", "dp")} == {
            name: shape.coordinate(rank, name) for name in ("tp", "pp", "dp")
        }


def test_a_rank_is_labelled_by_what_is_known_of_it() -> None:
    """Coordinates and node where they are known, the bare number where not."""
    shape = Topology((0, 1), {1: "gpu-7"}, (), {1: {"pp": 1, "dp": 0}})
    assert (shape.label(0), shape.label(1)) == ("rank 0", "rank 1 (pp1/dp0, gpu-7)")


def test_shared_groups_come_smallest_first() -> None:
    """The tightest communicator of some ranks explains them best."""
    found = inferred(dump(0, [call(1)], [group("0", 0, 1, 2, 3), group("1", 0, 1), group("2", 0, 2)]))
    assert [one.name for one in found.shared_groups([0, 1])] == ["1", "0"]


def test_the_order_of_records_does_not_matter() -> None:
    """Shuffled records give the same topology."""
    trace = execute(Job.of(Shape(steps=1)))
    records: list[Record] = [*dumps(trace, Recording((trace.idle_at,) * 8)), placed("a", "b")]
    expected = inferred(*records)
    random.Random(3).shuffle(records)
    assert inferred(*records) == expected
    assert inferred(*(msgspec.structs.replace(record) for record in records)) == expected
