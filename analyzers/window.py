"""An immutable slice of an attempt's records, as columns that an analyzer can compute on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from collectors.records import FlightRecorderDump, Record

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Window:
    """The records judged together, in a canonical order that does not depend on how they arrived.

    ``dumps``: the newest flight-recorder dump of each rank. ``earlier_dumps``: older ones of the same attempt.
    """

    records: tuple[Record, ...] = ()
    dumps: tuple[FlightRecorderDump, ...] = ()
    earlier_dumps: tuple[FlightRecorderDump, ...] = ()
    job: str | None = None
    attempt: int | None = None
    other_attempts: tuple[int, ...] = ()
    cache: dict[str, object] = field(default_factory=dict, compare=False)

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """Return the records of one kind, in the window's order."""
        return tuple(record for record in self.records if isinstance(record, kind))

    @classmethod
    def build(cls, records: Iterable[Record], attempt: int | None = None) -> Window:
        """Order the records, choose the attempt (default: the newest) and pick each rank's newest dump."""
        raise NotImplementedError
