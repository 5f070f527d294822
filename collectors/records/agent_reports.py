"""An agent's reports about itself: its collectors, and the results of commands."""

from __future__ import annotations

from typing import Literal

import msgspec

from collectors.records.record import Record


class CollectorReport(msgspec.Struct, frozen=True, kw_only=True):
    """One collector since the last report. Its absence from the data is explained here and nowhere else."""

    name: str
    every_seconds: float = 0.0
    runs: int = 0
    nothing: int = 0  # runs that had nothing to collect
    failures: int = 0
    overran: int = 0  # runs that were still going at their time bound
    records: int = 0
    seconds: float = 0.0  # of all runs together
    longest_seconds: float = 0.0
    error: str = ""  # of the newest failure, or why there is nothing


class Coverage(Record, frozen=True, kw_only=True, tag="coverage"):
    """An agent's account of a minute: what it saw, what it could not, and what it had to drop."""

    agent_version: str = ""
    started_at: float | None = None
    collectors: tuple[CollectorReport, ...] = ()
    spooled_batches: int = 0
    spooled_bytes: int = 0
    dropped_batches: int = 0  # since the agent's state was made: the spool's bound was reached
    dropped_records: int = 0
    dropped_bytes: int = 0
    dropped_from: float | None = None  # UTC seconds: the span that the dropped batches covered
    dropped_until: float | None = None
    refused_batches: int = 0  # that the service would not take


class CommandResult(Record, frozen=True, kw_only=True, tag="command_result"):
    """What became of a command."""

    command: str  # its id
    verb: str = ""
    outcome: Literal["done", "nothing", "failed", "denied", "expired", "unknown"] = "done"
    text: str = ""
    records: int = 0  # that the answer brought
