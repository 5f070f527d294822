"""Hostile, huge and broken files cost a message, never a crash, a wait, the memory or the files beside them."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.files.opening import Limits
from collectors.files.reading import read_paths
from collectors.records import FlightRecorderDump, Record, Unread
from tests.support.bounds import in_time

MOST_MEMORY_MB = 300
GOOD = pickle.dumps({"version": "2.9", "pg_config": {}, "pg_status": {}, "entries": []}, 2)
# Reads a path in a fresh process and reports what a user would see, and the most memory any of its processes held.
MEASURED = """
import json, resource, sys, time
from collections import Counter
from collectors.files.reading import read_paths
start = time.monotonic()
unread, kinds = Counter(), Counter()
reasons = []
for record in read_paths(sys.argv[1:]):
    kinds[type(record).__name__] += 1
    if type(record).__name__ == "Unread":
        unread[record.outcome] += 1
        if len(reasons) < 3:
            reasons.append(record.source + ": " + record.reason)
# Its own high-water mark, not getrusage's, which an exec inherits from whoever started this process.
own = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")]
most = max(own + [resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss])
print(json.dumps({"kinds": kinds, "unread": unread, "reasons": reasons, "mb": most >> 10,
                  "seconds": time.monotonic() - start}))
"""


def measured(*paths: Path) -> dict[str, Any]:
    """What reading the paths gives in a process of its own, with its memory and time."""
    command = [sys.executable, "-c", MEASURED, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=True, cwd=Path(__file__).parents[3])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def unread(records: list[Record]) -> list[tuple[str, str]]:
    """The outcome and reason of everything that was not read."""
    return [(record.outcome, record.reason) for record in records if isinstance(record, Unread)]


class Payload:
    """Unpickled freely, this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "cut"])
def test_a_pickle_with_a_payload_is_refused_and_runs_nothing(tmp_path: Path, protocol: int, whole: bool) -> None:
    """A __reduce__ payload is named and refused, also by the reader of damaged pickles, and never runs."""
    data = pickle.dumps({"version": "2.9", "entries": [Payload(tmp_path / "ran")]}, protocol)
    (tmp_path / "_dump_0").write_bytes(data if whole else data[:-2])
    records = list(read_paths([tmp_path / "_dump_0"]))
    assert not (tmp_path / "ran").exists()
    assert not any(isinstance(record, FlightRecorderDump) for record in records)
    if protocol > 1:  # older ones have no mark of their own and are not recognised at all
        assert [outcome for outcome, _ in unread(records)] == ["refused"]
        assert "mkdir" in unread(records)[0][1]


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02cbuiltins\neval\nU\x011\x85R.",
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
        b"\x80\x02Pnumber\n.",
        b"\x80\x02X\x01\x00\x00\x00aQ.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02(ios\nsystem\n.",
    ],
    ids=["global0", "global2", "stack_global", "persid", "binpersid", "extension", "inst"],
)
def test_every_way_to_name_something_is_refused(tmp_path: Path, code: bytes) -> None:
    """No opcode that imports, calls or looks an object up gets it."""
    (tmp_path / "_dump_0").write_bytes(code)
    assert [outcome in ("refused", "damaged") for outcome, _ in unread(list(read_paths([tmp_path / "_dump_0"])))] == [
        True
    ]


BOMBS = {
    "huge memo": b"\x80\x02}r" + struct.pack("<I", 2**31 - 8) + b".",
    "huge bytes": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"x.",
    "huge string": b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b"x.",
    "huge frame": b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"}.",
    "deep": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
    "cyclic": b"\x80\x02}q\x00U\x07entriesh\x00sU\x09pg_configh\x00s.",
    "doubling": b"\x80\x02}U\x07entries](}U\x0binput_sizes" + b"K\x01" + b"2\x86" * 60 + b"see.",
}


@pytest.mark.system
@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_that_asks_for_memory_gets_a_message(tmp_path: Path, name: str) -> None:
    """A few bytes that unfold to gigabytes cost a message and bounded memory, and the dump beside them is read."""
    (tmp_path / "_dump_0").write_bytes(BOMBS[name])
    (tmp_path / "_dump_1").write_bytes(GOOD)
    found = measured(tmp_path)
    assert found["mb"] < MOST_MEMORY_MB
    assert found["kinds"]["FlightRecorderDump"] >= 1
    assert name in {"cyclic", "doubling"} or sum(found["unread"].values()) == 1


@pytest.mark.system
def test_a_pickle_that_takes_forever_is_ended(tmp_path: Path) -> None:
    """Hashing a tuple nested 2**60 times is ended after its time; its process dies alone and says which file it was."""
    (tmp_path / "_dump_0").write_bytes(b"\x80\x02}K\x01" + b"2\x86" * 60 + b"K\x01s.")
    (tmp_path / "_dump_1").write_bytes(GOOD)
    records = list(read_paths([tmp_path], limits=Limits(seconds_per_file=1.0)))
    assert [(type(record).__name__, record.rank) for record in records] == [("Unread", 0), ("FlightRecorderDump", 1)]
    assert unread(records) == [("limit", "reading it took more than 1 s of the processor")]


@pytest.mark.system
def test_a_line_of_five_gigabytes_is_not_held(tmp_path: Path) -> None:
    """A log with a 5 GB line gives a message or its other lines in bounded memory."""
    for name, head in (("zeros.log", b""), ("job.log", b"[rank3]: Traceback (most recent call last):\n")):
        with (tmp_path / name).open("wb") as file:
            file.write(head)
            file.truncate(5_000_000_000)
    found = measured(tmp_path / "zeros.log")
    assert found["unread"] == {"unrecognised": 1}
    assert found["mb"] < MOST_MEMORY_MB
    assert measured(tmp_path / "job.log")["mb"] < MOST_MEMORY_MB


def _zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for number in range(3):
            with archive.open(f"_dump_{number}", "w") as member:
                member.write(b"\x80\x02]")
                for _ in range(300):
                    member.write(b"]" * (1 << 20))


def _gzip_bomb(path: Path) -> None:
    with gzip.open(path, "wb", 9) as outer, gzip.open(outer, "wb", 9) as inner:
        inner.write(b"\x80\x02]")
        for _ in range(300):
            inner.write(b"]" * (1 << 20))


@pytest.mark.system
@pytest.mark.parametrize("make", [_zip_bomb, _gzip_bomb])
def test_a_zip_bomb_is_cut(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """An archive that unfolds a thousandfold is stopped and named."""
    make(tmp_path / "bomb")
    (tmp_path / "_dump_1").write_bytes(GOOD)
    found = measured(tmp_path)
    assert found["unread"]["limit"] >= 1
    assert "bomb" in " ".join(found["reasons"])
    assert found["mb"] < MOST_MEMORY_MB
    assert found["kinds"]["FlightRecorderDump"] >= 1


def test_a_zip_whose_index_lies_is_damaged(tmp_path: Path) -> None:
    """An index that declares gigabytes or points nowhere costs a message."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("_dump_0", GOOD)
    data = bytearray(buffer.getvalue())
    end = data.rindex(b"PK\x05\x06")
    for offset, value in ((end + 12, 0x7FFFFFF0), (end + 16, 0x7FFFFFF0)):
        broken = bytearray(data)
        broken[offset : offset + 4] = struct.pack("<I", value)
        (tmp_path / "x.zip").write_bytes(broken)
        assert {outcome for outcome, _ in unread(list(read_paths([tmp_path / "x.zip"])))} <= {"damaged", "limit"}
        assert unread(list(read_paths([tmp_path / "x.zip"])))


def test_a_tar_header_that_lies_is_damaged(tmp_path: Path) -> None:
    """A name of a terabyte, a size of minus one and letters for digits each cost a message."""
    for kind, size in (
        (b"L", b"\x80" + (2**40).to_bytes(11, "big")),
        (b"x", b"77777777777\0"),
        (b"0", b"\xff" * 12),
        (b"0", b"zzzzzzzzzzz\0"),
    ):
        header = bytearray(512)
        header[:4], header[124:136], header[156:157], header[257:263] = b"name", size, kind, b"ustar\0"
        (tmp_path / "x.tar").write_bytes(bytes(header) + b"\0" * 2048)
        records = list(read_paths([tmp_path / "x.tar"]))
        assert any(outcome in ("damaged", "limit") for outcome, _ in unread(records)), (kind, size)


def test_a_symlink_loop_ends(tmp_path: Path) -> None:
    """Links that lead to each other are named, one up the tree leads to what is read, and the files are read once."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "_dump_1").write_bytes(GOOD)
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "b").symlink_to("c")
    (tmp_path / "c").symlink_to("b")
    records = list(read_paths([tmp_path]))
    assert Counter(type(record).__name__ for record in records) == {"FlightRecorderDump": 1, "Unread": 2}
    assert {outcome for outcome, _ in unread(records)} == {"empty"}
    assert unread(list(read_paths([tmp_path / "b"])))[0][0] == "refused"


@pytest.mark.system
def test_a_hundred_thousand_empty_files_are_a_message(tmp_path: Path) -> None:
    """They are counted, in bounded memory and time, and the one dump among them is read."""
    for number in range(100_000):
        os.close(os.open(tmp_path / f"empty_{number}", os.O_CREAT | os.O_WRONLY))
    (tmp_path / "_dump_1").write_bytes(GOOD)
    found = measured(tmp_path)
    assert found["kinds"] == {"FlightRecorderDump": 1, "Unread": 1001}
    assert found["mb"] < MOST_MEMORY_MB
    assert in_time(found["seconds"], 60)


def test_bytes_that_are_no_text_cost_a_message(tmp_path: Path) -> None:
    """Noise in a file, in JSON and in a file's own name is read or named, and what is said of it can be printed."""
    (tmp_path / "noise.log").write_bytes(bytes(range(128, 256)) * 600)
    (tmp_path / "rank1.json").write_bytes(b'{"version": "2.10", "pg_status": {}, "comm_lib_version": "\xff\xfe"}')
    (tmp_path / os.fsdecode(b"odd\xff\x1b[31m\n")).write_bytes(b"?")
    records = list(read_paths([tmp_path]))
    assert [record.rank for record in records if isinstance(record, FlightRecorderDump)] == [1]
    assert all(record.source.isprintable() for record in records)


def test_a_fifo_a_socket_and_a_device_are_not_waited_for(tmp_path: Path) -> None:
    """What is no file is named at once; nobody needs to write into the FIFO."""
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
    start = time.monotonic()
    records = [*read_paths([tmp_path]), *list(read_paths(["/dev/zero"]))]
    assert in_time(time.monotonic() - start, 30)
    assert [(outcome, reason.split(" is not")[0]) for outcome, reason in unread(records)] == [
        ("refused", "a FIFO"),
        ("refused", "a socket"),
        ("refused", "a character device"),
    ]


# Imported before the rights are dropped: nobody may not be able to read the checkout or the interpreter's own files.
AS_NOBODY = """
import collections, encodings.idna, json, os, resource, sys, time
from collectors.files.reading import read_paths
from collectors.formats import registry
registry()
os.setgid(65534)
os.setuid(65534)
"""


def test_a_folder_without_permission_is_named() -> None:
    """A folder and a file that may not be read are named, and the file beside them is read."""
    script = (AS_NOBODY if os.geteuid() == 0 else "") + MEASURED
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "closed").mkdir()
        for path in ("closed/_dump_0", "_dump_1", "_dump_2"):
            (folder / path).write_bytes(GOOD)
        folder.chmod(0o755)
        (folder / "_dump_2").chmod(0)
        (folder / "closed").chmod(0)
        command = [sys.executable, "-c", script, name]
        done = subprocess.run(command, capture_output=True, check=False, timeout=120, cwd=Path(__file__).parents[3])
        (folder / "closed").chmod(0o700)
    assert not done.returncode, done.stderr.decode()
    found = json.loads(done.stdout)
    assert (found["kinds"], found["unread"]) == ({"FlightRecorderDump": 1, "Unread": 2}, {"refused": 2})
    assert any("closed: the folder cannot be read: Permission denied" in reason for reason in found["reasons"])
