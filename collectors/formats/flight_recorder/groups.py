"""Which groups a Flight Recorder document names, and whose document it is."""

from __future__ import annotations

import re
from array import array
from typing import Any

from collectors.formats import Input
from collectors.records import Group, Members, column_bytes

Entry = dict[str, Any]

LONGEST_TEXT = 4096  # of a name, a type or a size list: longer ones are cut
MOST_GROUPS = 100_000
MOST_MEMBERS = 4_000_000
GROUPS_ASKED = 32  # the smallest of a rank's groups show the dump's rank
RANKS_REMEMBERED_BYTES = 64 << 20
P2P = re.compile(r"(?:^|:)(?:send|recv) (\d{1,7})(?:->|<-)\d")


def text_of(value: object, most: int = LONGEST_TEXT) -> str:
    """Return any value as text that can be written: cut, and without half surrogate pairs."""
    if value is None:
        return ""
    if not isinstance(value, str):
        try:
            value = str(value)
        except (ValueError, RecursionError):  # an integer of thousands of digits, or lists nested as deep
            return "?"
    if len(value) > most:
        value = value[:most] + "…"
    # A pickle may hold half a surrogate pair, which no UTF-8 can carry.
    return value if value.isascii() else value.encode(errors="replace").decode()


def process_group(value: object) -> tuple[Any, Any]:
    """Return name and description: a pair in every version seen; a lone value counts as the name."""
    if isinstance(value, (tuple, list)):
        return (value[0], value[1]) if len(value) > 1 else (value[0] if value else None, "")
    return value, ""


class _RankTexts:
    """The texts that ``ranks`` fields held, parsed: the world's is 104 kB in each of a 16,384-rank job's dumps."""

    def __init__(self) -> None:
        self._known: dict[str, Members | None] = {}
        self._held = 0

    def members(self, text: str) -> Members | None:
        """Return what a text names."""
        if text not in self._known:
            if self._held > RANKS_REMEMBERED_BYTES:
                self._known.clear()
                self._held = 0
            self._held += len(text)
            self._known[text] = _parse_ranks(text)
        return self._known[text]


_rank_texts = _RankTexts()


def members(value: object) -> Members | None:
    """Return the ranks that "[0, 1]" names, one object for equal lists; None: it names none."""
    if isinstance(value, (list, tuple)):
        value = ",".join(map(text_of, value[:MOST_MEMBERS]))
    return _rank_texts.members(value) if isinstance(value, str) else None


def _parse_ranks(text: str) -> Members | None:
    inner = text.strip().removeprefix("[").removesuffix("]")
    if not inner.strip():
        return None
    try:
        ranks = array("i", map(int, inner.split(",")))
    except (ValueError, OverflowError):
        return None
    return Members.intern(column_bytes(ranks)) if min(ranks) >= 0 else None


def groups_of(document: dict[Any, Any], entries: list[Entry], group_column: array[int]) -> tuple[Group, ...]:
    """Return the groups of pg_config, then those that only entries name, as all do on gloo."""
    found: dict[str, Group] = {}
    config = document.get("pg_config")
    for key, value in list(config.items())[:MOST_GROUPS] if isinstance(config, dict) else ():
        if isinstance(value, dict):
            name = text_of(value.get("name", key))
            if not name:  # gloo lists one group without a name and without ranks
                continue
            found[name] = Group(name, text_of(value.get("desc")), members(value.get("ranks")))
    for entry in dict(zip(group_column, entries, strict=True)).values():
        name, description = map(text_of, process_group(entry.get("process_group", entry.get("pg_id"))))
        if name and name not in found and len(found) < MOST_GROUPS:
            found[name] = Group(name, description)
    return tuple(found.values())


def rank_of(input: Input, groups: tuple[Group, ...], entries: list[Entry]) -> int | None:
    """Return the dump's rank: the one in its name, if its groups agree; else the one that its content shows.

    A rank's pg_config lists the groups it belongs to, and a send or receive names it by its place in its group. PyTorch
    ends every dump's name in the rank, whatever prefix the user chose; such a number counts only if all groups hold it.
    """
    smallest = sorted((group.members for group in groups if group.members), key=len)[:GROUPS_ASKED]
    if input.rank is not None and (not smallest or any(_holds(members, input.rank) for members in smallest)):
        return input.rank
    senders = _ranks_of_sends(groups, entries)
    if len(senders) == 1:
        return senders.pop()
    last = input.trailing_number
    if input.rank is None and last is not None and smallest and all(_holds(members, last) for members in smallest):
        return last
    common = set.intersection(*(set(members.ranks()) for members in smallest)) if smallest else set()
    return common.pop() if len(common) == 1 else input.rank


def _holds(members: Members, rank: int) -> bool:
    return rank in memoryview(members.data).cast("i")


def _ranks_of_sends(groups: tuple[Group, ...], entries: list[Entry]) -> set[int]:
    ranks_of = {group.name: group.members.ranks() for group in groups if group.members}
    ranks_found = set()
    for entry in entries:
        found = P2P.search(text_of(entry.get("profiling_name")))
        ranks = ranks_of.get(text_of(process_group(entry.get("process_group"))[0]), ()) if found else ()
        if found and int(found[1]) < len(ranks):
            ranks_found.add(ranks[int(found[1])])
    return ranks_found
