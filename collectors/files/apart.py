"""A foreign file's bytes are read in a process of their own, started anew: what they do to their reader ends there.

``collectors.files.children`` forks, which a program with threads must not do. The bytes go in by stdin, a block comes out.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from collectors.files.streams import Limits
from collectors.formats import Damaged, Input
from collectors.records import Record, Unread, block

ROOT = Path(__file__).resolve().parents[2]
HEAD_BYTES = 1 << 16


def read_apart(data: bytes, source: str, seconds: float) -> list[Record]:
    """Return the records that the bytes hold, or an ``Unread`` that says why there are none."""
    command = [sys.executable, "-c", "from collectors.files.apart import main; main()", source]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FAULTHOUND_")}  # a token is there
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, cwd=ROOT, env=kept, timeout=max(seconds, 0.1), check=False
        )
        return block.decode(done.stdout)
    except subprocess.TimeoutExpired:
        reason = f"it was not read within {seconds:.1f} s"
    except (OSError, Damaged) as error:
        reason = f"its reader ended without records: {error}"
    return [Unread(source=source, reason=reason, outcome="limit")]


def main() -> None:
    """Read stdin as the file that argv names, with bounded memory, and write a block to stdout."""
    from collectors.files.reading import BYTES_PER_FILE_BYTE, allow, read_input

    data = sys.stdin.buffer.read()
    allow(Limits().child_bytes + BYTES_PER_FILE_BYTE * len(data))
    found = list(read_input(Input(sys.argv[1], io.BytesIO(data), data[:HEAD_BYTES])))
    sys.stdout.buffer.write(block.encode(found))
