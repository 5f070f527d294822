"""An agent's reports about itself: its collectors, and the results of commands."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from collectors.records.record import FEW, Count, Instant, Name, Real, Record, Text


class CollectorReport(msgspec.Struct, frozen=True, kw_only=True):
    """One collector since the last report. Its absence from the data is explained here and nowhere else."""

    name: Name
    every_seconds: Real = 0.0
    runs: Count = 0
    nothing: Count = 0  # runs that had nothing to collect
    failures: Count = 0
    overran: Count = 0  # runs that were still going at their time bound
    killed_parses: Count = 0  # what it read hung or ended the process that parsed it
    records: Count = 0
    seconds: Real = 0.0  # of all runs together
    longest_seconds: Real = 0.0
    error: Text = ""  # of the newest failure, or why there is nothing


class Coverage(Record, frozen=True, kw_only=True, tag="coverage"):
    """An agent's account of a minute: what it saw, what it could not, and what it had to drop."""

    agent_version: Name = ""
    started_at: Instant | None = None
    collectors: Annotated[tuple[CollectorReport, ...], FEW] = ()
    spooled_batches: Count = 0
    spooled_bytes: Count = 0
    dropped_batches: Count = 0  # since the agent's state was made: the spool's bound was reached
    dropped_records: Count = 0
    dropped_bytes: Count = 0
    dropped_from: Instant | None = None  # UTC seconds: the span that the dropped batches covered
    dropped_until: Instant | None = None
    refused_batches: Count = 0  # that the service would not take


class CommandResult(Record, frozen=True, kw_only=True, tag="command_result"):
    """What became of a command."""

    command: Name  # its id
    verb: Name = ""
    outcome: Literal["done", "nothing", "failed", "denied", "expired", "unknown"] = "done"
    text: Text = ""
    records: Count = 0  # that the answer brought
