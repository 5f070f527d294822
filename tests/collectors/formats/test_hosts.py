"""A hosts file places ranks, a wrong one is named, and no other file is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.files.reading import read_paths
from collectors.formats import Damaged
from collectors.formats.hosts import MOST_RANKS, placement
from collectors.records import Placement, Unread


@pytest.mark.parametrize(
    ("text", "ranks_per_node", "nodes"),
    [
        ("a\nb\n", None, ("a", "b")),
        ("# by hand\na\n\nb  # the second\r\n", None, ("a", "b")),
        ("node[0001-0003,0007]", None, ("node0001", "node0002", "node0003", "node0007")),
        ("b2,a[1-2],c", 2, ("b2", "b2", "a1", "a1", "a2", "a2", "c", "c")),
        ("a slots=2\nb slots=1 max_slots=4", None, ("a", "a", "b")),
        ("a:2\nb", None, ("a", "a", "b")),
    ],
)
def test_a_hosts_file_places_each_rank(text: str, ranks_per_node: int | None, nodes: tuple[str, ...]) -> None:
    """Line N is rank N; hostlists, slots and a number of ranks a node are followed in their order."""
    found = placement(text, ranks_per_node)
    assert (found.nodes, found.world_size) == (nodes, len(nodes))
    assert found.ranks is not None
    assert found.ranks.ranks() == tuple(range(len(nodes)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "127.0.0.1 localhost",
        "a[3-1]",
        "a[1-",
        "node[1-99999999999]",
        "a[1-1000]b[1-100000]",
        "$(ls)",
        "-x",
    ],
)
def test_what_is_no_hosts_file_is_damaged(text: str) -> None:
    """Anything else is named with its line and never expanded into memory."""
    with pytest.raises(Damaged, match=r"host"):
        placement(text)


def test_the_most_ranks_are_placed_and_no_more() -> None:
    """A hosts file of exactly the bound is read; one rank more is refused with the bound."""
    assert placement("a", MOST_RANKS).world_size == MOST_RANKS
    with pytest.raises(Damaged, match=r"1,000,000"):
        placement("a", MOST_RANKS + 1)


def test_only_a_file_of_that_name_is_a_hosts_file(tmp_path: Path) -> None:
    """Names in another file are no placement, nor is a system's own /etc/hosts."""
    (tmp_path / "hosts.txt").write_text("gpu-1\ngpu-2\n")
    (tmp_path / "words.txt").write_text("gpu-1\ngpu-2\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "hosts").write_text("127.0.0.1 localhost\n::1 ip6-localhost ip6-loopback\n")
    records = list(read_paths([tmp_path]))
    assert [type(record) for record in records] == [Unread, Placement, Unread]
    assert [record.nodes for record in records if isinstance(record, Placement)] == [("gpu-1", "gpu-2")]
