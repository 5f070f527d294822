"""NCCL's RAS subsystem: communicators and lost peers."""

from __future__ import annotations

from typing import Annotated

import msgspec

from collectors.records.record import FEW, MANY, Integer, Name, Record, Text, WorldSize


class RasRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a communicator as NCCL RAS sees it; ``rank`` is the communicator's own numbering."""

    rank: Integer
    host: Name = ""
    pid: Integer | None = None
    gpu: Integer | None = None
    init_state: Integer | None = None
    async_error: Integer | None = None
    aborted: bool = False
    counts: Annotated[dict[Name, Integer], FEW] = {}  # operation → launched
    missing: bool = False
    unresponsive: bool = False
    dead: bool = False


class RasCommunicator(Record, frozen=True, kw_only=True, tag="ras_communicator"):
    """One communicator in a NCCL RAS report. Identity: (hash, secondary_hash)."""

    hash: Name = ""
    secondary_hash: Name = ""
    size: WorldSize = 0
    status: Name | None = None  # text form: RUNNING, INIT, FINALIZE, UNKNOWN/NOCOMM
    errors: Name | None = None  # text form: OK, MISMATCH, INCOMPLETE
    ranks: Annotated[tuple[RasRank, ...], MANY] = ()
    warnings: Annotated[tuple[Text, ...], FEW] = ()


class RasPeerDead(Record, frozen=True, kw_only=True, tag="ras_peer_dead"):
    """NCCL RAS lost a process: unreachable for 60 s."""

    host: Name = ""
    pid: Integer | None = None
    gpus: Annotated[tuple[Integer, ...], FEW] = ()
