"""Collect what an engineer could: dumps over each rank's socket, stacks, the process table, logs, a hosts file."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

RANKS_PER_NODE = 2
ANSWER_SECONDS = 5.0  # a healthy worker server answers in milliseconds, a stopped process never


@dataclass(frozen=True)
class Evidence:
    """Which files to collect from a hung job, and in which of the forms that people have."""

    dumps: Literal["json", "pickle", "none"] = "json"
    stacks: Literal["py-spy", "py-spy text", "faulthandler", "none"] = "py-spy"
    processes: bool = True


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_SECONDS)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_SECONDS)
        self.sock.connect(str(self.path))


def ask(path: Path, handler: str) -> bytes | None:
    """Return what a rank's worker server answers, None where it is stopped or gone."""
    connection = _UnixConnection(path)
    try:
        connection.request("POST", f"/handler/{handler}")
        response = connection.getresponse()
        return response.read() if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def collect(private: Path, processes: dict[int, int], folder: Path, evidence: Evidence) -> None:
    """Write the files of a hung job: ``processes`` is rank → pid of those alive."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, pid in sorted(processes.items()):
        _stacks(private, rank, pid, folder, evidence)
    if evidence.processes:
        (folder / "ps.txt").write_text(_process_table(processes))
    for rank in sorted(processes):
        _dump(private, rank, folder, evidence)


def host_of(rank: int, ranks_per_node: int = RANKS_PER_NODE, first_node: int = 0) -> str:
    """Return the host that a rank is pretended to run on."""
    return f"gpu-{first_node + rank // ranks_per_node:04d}"


def write_hosts(folder: Path, ranks: int) -> None:
    """Write the pretended placement: line N is the host of rank N."""
    (folder / "hosts.txt").write_text("".join(f"{host_of(rank)}\n" for rank in range(ranks)))


def _dump(private: Path, rank: int, folder: Path, evidence: Evidence) -> None:
    if evidence.dumps == "json":
        answer = ask(private / f"{rank}.sock", "fr_trace_json")
        if answer:
            (folder / f"fr_rank{rank}.json").write_bytes(answer)
    elif evidence.dumps == "pickle":
        stem = private / f"nccl_trace_rank_{rank}"
        if _pickled(stem):
            shutil.copy2(stem, folder / stem.name)


def _pickled(stem: Path) -> bool:
    """Ask through the rank's pipe and say whether the dump appeared."""
    try:
        pipe = os.open(f"{stem}.pipe", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # nobody reads: the rank is gone, or still busy with an earlier request
        return False
    os.write(pipe, b"dump\n")
    os.close(pipe)
    deadline = time.monotonic() + ANSWER_SECONDS
    while not stem.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return stem.exists()


def _stacks(private: Path, rank: int, pid: int, folder: Path, evidence: Evidence) -> None:
    if evidence.stacks == "faulthandler":
        answer = ask(private / f"{rank}.sock", "dump_traceback")
        if answer:
            (folder / f"traceback_rank{rank}.txt").write_bytes(answer)
    elif evidence.stacks != "none":
        as_json = evidence.stacks == "py-spy"
        command = [str(_py_spy()), "dump", "--nonblocking", "--pid", str(pid), *(["--json"] if as_json else [])]
        answer = subprocess.run(command, capture_output=True, timeout=30).stdout
        if answer:
            (folder / f"stacks_rank{rank}.{'json' if as_json else 'txt'}").write_bytes(answer)


def _py_spy() -> Path:
    return Path(sysconfig.get_path("scripts")) / "py-spy"


def _process_table(processes: dict[int, int]) -> str:
    numbers = ",".join(str(pid) for pid in processes.values())
    command = ["ps", "-ww", "-o", "pid,stat,wchan:32,etime,args", "-p", numbers]
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
