"""A message that ends within the words of an accelerator's error: a log that was cut in its last line.

Such an error is the GPU's, the driver's or the program's, and the words that are missing would say which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collectors.records import LogEvent


def is_cut(event: LogEvent, table: Mapping[str, Any]) -> bool:
    """Whether an exception's message is the beginning of an accelerator's error, and not the whole of one."""
    known = table.get("cut", {})
    said = (event.message or "").strip().lower()
    if event.event != "traceback" or event.exception is None or "\n" in said:
        return False
    always = event.exception.rsplit(".", 1)[-1] in known.get("always_of_a_device", ())
    for lead in known.get("leads", ()):
        if said.startswith(lead):
            rest = said.removeprefix(lead).strip()
            return any(text.startswith(rest) and text != rest for text in known["texts"])
        if lead.startswith(said) and (always or len(said) >= len(lead.split()[0])):
            return True
    return False
