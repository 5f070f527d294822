"""What the engine knows of a slowdown when it is judged: since when, by how much, and what else changed then, and on whom."""

from __future__ import annotations

from typing import Literal

import msgspec

Of = Literal["rank", "node", "device"]


class Apart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rank, a node or a device whose reading changed with the job's steps, and those of its peers did not."""

    id: str
    before: float
    since: float
    ranks: tuple[int, ...] = ()
    node: str | None = None


class Measure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One kind of reading, before the slowdown and since: its medians, and who stands apart."""

    name: str  # a row of analyzers/incidents/job_views/burdens.py
    of: Of
    read: int  # how many were read before and since
    before: float
    since: float
    apart: tuple[Apart, ...] = ()
    risen: int = 0  # how many rose by what the measure asks for
    most: float | None = None  # the largest rise of all


class OtherCode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The versions of the job's code before and since a slowdown. ``new_nodes``: hosts since that were none before."""

    before: str
    since: str
    new_nodes: tuple[str, ...] | None = None  # None: not known


class ReportedRanks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ranks that a detector inside the job names as slow, those that wait for one another together.

    ``own``: rank 0, whose log the reports are in, runs on their node, too: no other node's agent accuses it.
    """

    ranks: tuple[int, ...]
    why: str
    strength: float
    node: str | None = None
    own: bool = False


class StragglerLook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the reports in a job's log come to, by the rule for files. No ``named``: they do not decide."""

    fault_class: str
    shown: tuple[str, ...]
    named: tuple[ReportedRanks, ...] = ()
    missing: tuple[str, ...] = ()


class SlowLook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A slowdown that lasts."""

    since: float
    step: int  # after which it began
    before_seconds: float | None = None  # that a step took; None: an engine before this one knew it
    seconds: float | None = None
    measures: tuple[Measure, ...] = ()
    code: OtherCode | None = None
    reported: StragglerLook | None = None
