"""The inference engines of a job, vLLM's and SGLang's servers, asked over HTTP whether they answer and what they generate.

A process has many ports, and a stranger's request at one of a collective library's could break the job. So only a process whose
command is a server's is asked, at the port that its command names, and only where that process itself listens there. A server
inside another program (a Ray actor's, an engine without HTTP) has no such command, and is not asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from collectors.files.apart import ParsingFailed
from collectors.live import NothingToCollect, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.job_files import COMMAND_BYTES, owner
from collectors.live.sources.listeners import refuse_strangers
from collectors.live.sources.proc_stat import stat_of
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.recorder_endpoints import listening_tcp
from collectors.live.sources.socket_requests import RequestFailed
from collectors.live.sources.sockets import networks
from collectors.live.sources.system_files import read
from collectors.records import Record, RoleState, Unread
from collectors.records.identity import shown_rank

ANSWER_SECONDS = 2.0  # for each request
PARSING_SECONDS = 3.0  # beyond the server's own time
RUN_SECONDS = 9.0  # after which no further server is asked: the next run begins with it
MOST_CHILDREN = 64  # of one rank, looked at
SOURCE = "engines"
PORTS = {"vllm": 8000, "sglang": 30000}  # where the command names none


@dataclass(frozen=True, slots=True)
class _Server:
    """One server of a rank. ``several``: the rank has others, so that the port belongs to its name."""

    process: TrainingProcess
    pid: int
    kind: str
    address: str
    several: bool

    @property
    def of_records(self) -> dict[str, object]:
        """Return whose it is."""
        port = self.address.rpartition(":")[2]
        instance = shown_rank(self.process.rank) + (f":{port}" if self.several else "")
        return {**self.process.of_records, "source": SOURCE, "instance": instance, "pid": self.pid}


def server_of(command: bytes) -> tuple[str, int] | None:
    """Return which server a command starts, and the port that it names for HTTP, or the usual one; None: no server.

    >>> server_of(b"sglang\\0serve\\0--port=31000\\0"), server_of(b"vllm\\0serve\\0m\\0"), server_of(b"python\\0t.py\\0")
    (('sglang', 31000), ('vllm', 8000), None)
    """
    words = [word.decode("utf-8", "replace") for word in command.split(b"\0")]
    kind = _kind(words)
    if kind is None:
        return None
    given = [word.partition("=")[2] for word in words if word.startswith("--port=")]
    given += [after for word, after in pairwise(words) if word == "--port"]
    if not given:
        return kind, PORTS[kind]
    port = given[-1]
    return (kind, int(port)) if port.isascii() and port.isdigit() and len(port) < 6 else None


def _kind(words: list[str]) -> str | None:
    """Return which server a command starts: by its module, its script, or the title that its process has."""
    for word, after in zip(words[:8], [*words[1:8], ""], strict=False):
        name = word.rpartition("/")[2]
        if name in PORTS and after == "serve":
            return name
        if word.startswith("vllm.entrypoints.") or word.endswith("vllm/entrypoints/openai/api_server.py"):
            return "vllm"
        if word == "sglang.launch_server" or word.endswith("sglang/launch_server.py"):
            return "sglang"
    return "vllm" if words[0].startswith("VLLM::APIServer") else None


@collector(
    SOURCE, gives="requests and tokens of the job's vLLM and SGLang servers, and whether they answer", every_seconds=10,
    limit_seconds=10,
)  # fmt: skip
class Engines:
    """Asks each server of the job on this node."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.asked_at: dict[str, float] = {}  # by address, of the monotonic clock
        self.answered: set[tuple[int, str]] = set()  # pid and address: a server that loads its model answers with 503

    def __call__(self, _asked: Request | None) -> Iterator[Yielded]:
        """Yield a reading a server; the one that was asked longest ago comes first."""
        servers = sorted(self._servers(), key=lambda server: self.asked_at.get(server.address, 0.0))
        if not servers:
            raise NothingToCollect("no process of a job here is a vLLM or SGLang server that listens at its own port")
        began_at, here = time.monotonic(), {server.address for server in servers}
        self.asked_at = {address: at for address, at in self.asked_at.items() if address in here}
        self.answered &= {(server.pid, server.address) for server in servers}
        for server in servers:
            if time.monotonic() - began_at >= RUN_SECONDS:
                return
            self.asked_at[server.address] = (
                time.monotonic()
            )  # before it answers: a run that is ended here goes on behind it
            yield self._ask(server)

    def _ask(self, server: _Server) -> Record:
        seconds = 4 * ANSWER_SECONDS + PARSING_SECONDS
        try:
            refuse_strangers(server.address, {owner(self.host, server.pid)} - {None})
            answers, values = self.host.apart.parse(
                "engines", server.address, ANSWER_SECONDS, server.kind, seconds=seconds, source=server.address
            )
            key = server.pid, server.address
            if answers:
                self.answered.add(key)
            known = answers if key in self.answered else None
            return RoleState(**server.of_records, answers=known, **values)  # type: ignore[arg-type]
        except (RequestFailed, ParsingFailed) as error:
            whose = server.process.of_records
            return Unread(
                **whose, source=f"{SOURCE}/{server.pid}", reason=f"{server.address}: {error}", outcome="refused"
            )

    def _servers(self) -> Iterator[_Server]:
        taken: set[int] = set()
        for process in self.host.training():
            places = ((pid, self._place(pid)) for pid in self._pids(process) if pid not in taken)
            found = [(pid, *place) for pid, place in places if place is not None]
            taken |= {pid for pid, _, _ in found}
            yield from (_Server(process, *place, several=len(found) > 1) for place in found)

    def _pids(self, process: TrainingProcess) -> Iterator[int]:
        """Yield the rank's process, what it has started, and what started it: an engine's core is below its server."""
        yield process.pid
        for stat in self.host.process_table.descendants(process.pid)[:MOST_CHILDREN]:
            yield stat.pid
        above = stat_of(str(self.host.roots.proc), process.pid)
        if above is not None and above.parent_pid > 1 and owner(self.host, above.parent_pid) == process.uid is not None:
            yield above.parent_pid

    def _place(self, pid: int) -> tuple[str, str] | None:
        """Return which server a process is and where it listens, if the agent reaches it there."""
        proc = self.host.roots.proc
        with suppress(OSError):
            server = server_of(read(proc / str(pid) / "cmdline", COMMAND_BYTES))
            if server is not None and networks([proc / str(pid)], proc / "self") == [None]:
                addresses = (at for at in listening_tcp(self.host, pid) if at.endswith(f":{server[1]}"))
                return next(((server[0], address) for address in addresses), None)
        return None
