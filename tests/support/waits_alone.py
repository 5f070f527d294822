"""What the waits of others would evict by themselves. In files nothing is evicted for them (docs/decisions/0056).

A matrix of dumps alone asks whether they accuse an innocent machine: held back by nothing, an eviction shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from analyzers.verdict.gate import EvictionGate


@contextmanager
def evicting() -> Iterator[None]:
    """Let waits evict, as in a live job of which two rounds found every process where it stands."""
    with patch.object(EvictionGate, "_by_files", lambda *_: None):
        yield
