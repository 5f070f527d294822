"""Foreign text as it may be shown: what steers a terminal, hides, or turns the direction of writing becomes an escape.

One set of characters, for every border: terminals, pages, reports, logs, and what other programs print.
"""

from __future__ import annotations

import json
import re

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tabs and line ends, DEL, C1
    # Unicode's category Cf, and the separators of lines and paragraphs:
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
    "\u115f\u1160\u3164\uffa0"  # letters that show nothing
    "\ud800-\udfff]"  # halves of pairs
)


def printable(text: str, keep: str = "") -> str:
    """Return a text whose unprintable characters, but those of ``keep``, are escapes such as ``\\x1b`` and ``\\u202e``."""
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0] in keep else _escape(ord(found[0])), text)


def printable_json(document: bytes) -> str:
    """Return a JSON document as text; its unprintable characters are JSON's own escapes, so that its values are the same."""
    return _UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], document.decode("utf-8", "replace"))


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
