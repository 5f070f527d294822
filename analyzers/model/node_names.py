"""Names of nodes: which two are of one machine."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=1 << 14)
def short(node: str) -> str:
    """Return a node's name without its domain; an address stays whole."""
    return node if re.fullmatch(r"[\d.]+|[0-9a-fA-F:]+", node) else node.split(".", 1)[0]
