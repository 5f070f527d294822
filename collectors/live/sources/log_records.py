"""What lines of a log report, as records of the job whose log it is."""

from __future__ import annotations

from array import array

import msgspec

from collectors.live.sources.tailing import Chunk
from collectors.records import RoleState, StragglerReports, column_bytes
from collectors.records.identity import shown_rank


def of_phase(chunk: Chunk, rank: int, phase: str, since: float) -> RoleState:
    """Return what a process does by its own log; "": it is between two phases."""
    return RoleState(
        source=chunk.path, at=chunk.written_at, rank=rank, instance=shown_rank(rank), phase=phase,
        phase_since=since if phase else None,
    )  # fmt: skip


def of_reports(reports: StragglerReports, chunk: Chunk, rank: int, shift: float) -> StragglerReports:
    """Return reports of stragglers by UTC, as the word of a rank that writes the log."""
    at = array("d", reports.columns["at"])
    for index, stamp in enumerate(at):
        at[index] = stamp + shift
    columns = {**reports.columns, "at": column_bytes(at)}
    return msgspec.structs.replace(reports, rank=rank, node=None, at=chunk.written_at, columns=columns)
