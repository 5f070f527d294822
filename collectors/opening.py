"""Files are opened here and nowhere else: found, unpacked, and bounded."""

from __future__ import annotations

from collectors.streams import Limits, lines

__all__ = ["Limits", "lines"]
