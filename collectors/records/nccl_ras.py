"""NCCL's RAS subsystem: communicators and lost peers."""

from __future__ import annotations

import msgspec

from collectors.records.record import Record


class RasRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a communicator as NCCL RAS sees it; ``rank`` is the communicator's own numbering."""

    rank: int
    host: str = ""
    pid: int | None = None
    gpu: int | None = None
    init_state: int | None = None
    async_error: int | None = None
    aborted: bool = False
    counts: dict[str, int] = {}  # operation → launched
    missing: bool = False
    unresponsive: bool = False
    dead: bool = False


class RasCommunicator(Record, frozen=True, kw_only=True, tag="ras_communicator"):
    """One communicator in a NCCL RAS report. Identity: (hash, secondary_hash)."""

    hash: str = ""
    secondary_hash: str = ""
    size: int = 0
    status: str | None = None  # text form: RUNNING, INIT, FINALIZE, UNKNOWN/NOCOMM
    errors: str | None = None  # text form: OK, MISMATCH, INCOMPLETE
    ranks: tuple[RasRank, ...] = ()
    warnings: tuple[str, ...] = ()


class RasPeerDead(Record, frozen=True, kw_only=True, tag="ras_peer_dead"):
    """NCCL RAS lost a process: unreachable for 60 s."""

    host: str = ""
    pid: int | None = None
    gpus: tuple[int, ...] = ()
