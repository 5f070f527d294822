"""What services that watch memory say of their kills, which they make before the kernel has to.

Formats: earlyoom 1.0 to 1.8 (``kill.c``), systemd-oomd 248 to 257 (``oomd-manager.c``), which kills a whole unit, and systemd's
own line of that unit.
"""

from __future__ import annotations

import re
from typing import Any

SERVICES = ("earlyoom", "systemd-oomd", "systemd")
"""Their tags in syslog."""


def _killed(found: re.Match[str]) -> dict[str, Any]:
    pid = found.groupdict().get("pid")
    return {"event": "oom_kill", "pid": int(pid) if pid else None, "process": found["name"][:64], "severity": "global"}


_EARLYOOM = (
    r"(?:earlyoom: )?sending SIG(?:TERM|KILL) to process (?P<pid>\d{1,10})(?: uid \d{1,10})? \"(?P<name>[^\"]{0,64})\": "
    r"(?:badness|oom_score) "
)
ROWS = (
    (
        ("sending SIG",),
        _EARLYOOM,
        _killed,
    ),
    (
        (" due to memory ",),
        r"(?:Killed|Marked) (?P<name>.{1,400}?) (?:for killing )?due to memory (?:used \(|pressure for )",
        _killed,
    ),
    (
        ("systemd-oomd killed ",),
        r"(?P<name>.{1,200}?): systemd-oomd killed \d{1,9} process\(es\) in this unit",
        _killed,
    ),
)
