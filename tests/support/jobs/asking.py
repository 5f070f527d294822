"""A plain torchrun job over gloo, one of whose ranks asks a server that never answers: started by ``network.py``."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import signal
import socket
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PRIVATE = Path(os.environ["ASKING_PRIVATE"])


def strike() -> dict[str, Any]:
    """Return what the driver last wrote: number, rank, client and the server's address."""
    try:
        reported: dict[str, Any] = json.loads((PRIVATE / "strike").read_text())
    except FileNotFoundError:
        return {"number": -1, "rank": -1}
    return reported


def place() -> tuple[str, int]:
    """Return where the server is."""
    host, _, port = strike()["address"].rpartition(":")
    return host, int(port)


def with_urlopen() -> object:
    """Ask the standard library's way."""
    return urllib.request.urlopen("http://{}:{}/reward".format(*place())).read()


def with_a_raw_socket() -> object:
    """Ask as Redis clients do."""
    asked = socket.create_connection(place())
    asked.sendall(b"*1\r\n$4\r\nPING\r\n")
    return asked.recv(64)


def with_tls() -> object:
    """Ask over TLS, whose handshake is the first to get no answer."""
    connection = http.client.HTTPSConnection(*place(), context=ssl._create_unverified_context())
    connection.request("GET", "/")
    return connection.getresponse().read()


def with_httpx() -> object:
    """Ask with a library that waits in poll."""
    import httpx

    return httpx.get("http://{}:{}/reward".format(*place()), timeout=3600).text


def with_an_event_loop() -> object:
    """Ask from a coroutine."""
    import asyncio

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection(*place())
        writer.write(b"GET /\r\n\r\n")
        return await reader.readline()

    return asyncio.run(ask())


CLIENTS: dict[str, Callable[[], object]] = {
    "urlopen": with_urlopen,
    "raw socket": with_a_raw_socket,
    "tls": with_tls,
    "httpx": with_httpx,
    "event loop": with_an_event_loop,
}


def main() -> None:
    """Train; whenever the driver says so one rank asks, and all wait until its server has gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    signal.alarm(1800)
    done = -1
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    (PRIVATE / f"pid_rank{rank}").write_text(str(os.getpid()))
    for step in count(1):
        time.sleep(0.2)
        reported = strike()
        if reported["rank"] == rank and reported["number"] != done:
            done = reported["number"]
            (PRIVATE / f"struck{done}").touch()
            with suppress(Exception):  # the server was ended
                CLIENTS[reported["client"]]()
            (PRIVATE / f"asked{done}").touch()
        loss = torch.ones(8) / step
        dist.all_reduce(loss)
        if rank == 0:
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} INFO step {step} loss {loss.mean().item():.6f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
