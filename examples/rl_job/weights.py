"""How weights reach a rollout: point to point, from the trainer or from a rollout that has them, over UCX or TCP.

``Sender`` offers the newest version under an address, ``fetch`` takes it. UCX comes with NIXL (``pip install --no-deps nixl
nixl-cu12``); where that is missing, TCP is used. Both move the parameters as one block of bytes of the CPU's memory.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import faults
import torch
import wire
from torch import Tensor

try:
    from nixl._api import nixl_agent as NixlAgent  # noqa: N812
    from nixl._api import nixl_agent_config
except ImportError:
    NixlAgent = None


class Sender(Protocol):
    """Offers the weights."""

    address: str

    def publish(self, version: int, values: Tensor) -> None:
        """Offer another version from now on."""


class TcpSender:
    """Offers the weights over TCP."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version, self._data = -1, b""
        self.address, self._server = wire.serve(self._answer)

    def publish(self, version: int, values: Tensor) -> None:
        """Offer another version from now on."""
        data = values.numpy().tobytes()
        with self._lock:
            self._version, self._data = version, data

    def _answer(self, _request: wire.Message, _data: bytes) -> tuple[wire.Message, bytes]:
        faults.block("stalled")
        with self._lock:
            if self._version < 0:
                raise wire.Denied("no weights yet")
            return {"version": self._version}, self._data


class NixlSender:
    """Offers the weights over UCX: the receiver reads them from this process's memory. TCP carries only the description."""

    def __init__(self, name: str) -> None:
        self._agent = NixlAgent(name, nixl_agent_config(backends=["UCX"]))
        self._lock = threading.Lock()
        self._version = -1
        self._offered: dict[int, tuple[Tensor, Any]] = {}  # the newest two: a receiver may still read the one before
        self.address, self._server = wire.serve(self._answer)

    def publish(self, version: int, values: Tensor) -> None:
        """Offer another version from now on."""
        block = values.clone().contiguous()
        registered = self._agent.register_memory([block])
        with self._lock:
            self._offered[version], self._version = (block, registered), version
            for old in sorted(self._offered)[:-2]:
                self._agent.deregister_memory(self._offered.pop(old)[1])

    def _answer(self, _request: wire.Message, _data: bytes) -> tuple[wire.Message, bytes]:
        faults.block("stalled")
        with self._lock:
            if self._version < 0:
                raise wire.Denied("no weights yet")
            block, _ = self._offered[self._version]
            described = self._agent.get_serialized_descs(self._agent.get_xfer_descs([block]))
            metadata = self._agent.get_agent_metadata()
        about = {"version": self._version, "ucx": len(metadata), "values": block.numel()}
        return about, metadata + described


def sender(name: str) -> Sender:
    """Return the best sender that this machine has."""
    return TcpSender() if NixlAgent is None else NixlSender(name)


class Receiver:
    """Takes weights from whichever sender has them."""

    def __init__(self, name: str) -> None:
        self._agent = None if NixlAgent is None else NixlAgent(name, nixl_agent_config(backends=["UCX"]))

    def fetch(self, address: str, seconds: float = wire.SECONDS) -> tuple[int, Tensor]:
        """Return the version and the values that a sender offers now; raise OSError where it does not answer in time."""
        about, data = wire.ask(address, {}, seconds=seconds)
        if "ucx" not in about:
            return about["version"], torch.frombuffer(bytearray(data), dtype=torch.float32)
        if self._agent is None:
            raise OSError(f"{address} offers its weights over UCX, and this process has no NIXL")
        return about["version"], self._read(about, data, seconds)

    def _read(self, about: wire.Message, data: bytes, seconds: float) -> Tensor:
        agent, values = self._agent, torch.empty(about["values"])
        assert agent is not None
        registered = agent.register_memory([values])
        peer = agent.add_remote_agent(data[: about["ucx"]])
        try:
            remote = agent.deserialize_descs(data[about["ucx"] :])
            transfer = agent.initialize_xfer("READ", agent.get_xfer_descs([values]), remote, peer, b"")
            state, waited = agent.transfer(transfer), threading.Event()
            for _ in range(int(seconds * 1000)):
                if state in ("DONE", "ERR"):
                    break
                waited.wait(0.001)
                state = agent.check_xfer_state(transfer)
            if state != "DONE":
                raise OSError(f"the transfer over UCX ended as {state}")
            agent.release_xfer_handle(transfer)
        finally:
            agent.remove_remote_agent(peer)
            agent.deregister_memory(registered)
        return values
