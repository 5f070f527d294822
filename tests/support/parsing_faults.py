"""The process that parses for the agent, with one more parser: it fails in the way that it is asked to."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

ENDLESS = re.compile("(?:a|a)*b")
grown: list[bytearray] = []


def parse(fault: str) -> object:
    """Do what the word says."""
    if fault == "hang":
        ENDLESS.match("a" * 100)
    elif fault in {"slow", "sleep"}:
        time.sleep(0.4 if fault == "slow" else 60.0)
    elif fault == "die":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "exit":
        os._exit(7)
    elif fault == "memory":
        bytearray(1 << 40)
    elif fault == "raise":
        raise ZeroDivisionError("on purpose")
    elif fault == "flood":
        return bytes(33 << 20)
    elif fault == "grow":
        grown.append(bytearray(b"x") * (100 << 20))
        return "grown"
    return "ok"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    faults = ModuleType("faults")
    faults.parse = parse  # type: ignore[attr-defined]
    sys.modules["collectors.files.parsers.faults"] = faults
    from collectors.files.parsers.__main__ import main

    main()
