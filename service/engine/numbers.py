"""The numbers that an engine reports once a second to the service that runs it."""

from __future__ import annotations

import msgspec


class Numbers(msgspec.Struct, kw_only=True):
    """Counts since the process began, and its present state."""

    working: bool = False  # it holds the lease; False: another engine does, or the database is unreachable
    sequence: int = 0  # the newest batch that it has decided on
    lag_seconds: float = 0.0  # age of the oldest batch that it has not read yet
    open_incidents: int = 0
    batches: int = 0
    undecodable_batches: int = 0
    step_failures: int = 0  # events on which the engine failed, left out
    left_out: int = 0  # records, detectors and decisions that failed alone
    evidence_bytes: int = 0  # records that are kept for judgements, packed
    shed_records: int = 0  # that were given up for want of memory
    write_failures: int = 0  # instructions that the database refused
    ticks: int = 0
    tick_seconds: float = 0.0  # of all ticks together
    longest_tick_seconds: float = 0.0
    judgements: int = 0
    judge_seconds: float = 0.0  # of all judgements together, from the asking on
    judge_failures: int = 0
    takeovers: int = 0  # of the lease
    proposals: int = 0  # verdicts that led to a plan
    remediations: int = 0  # that have not ended
    remedy_failures: int = 0  # runs of the proposer that failed
