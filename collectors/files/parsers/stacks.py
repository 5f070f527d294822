"""The output of py-spy, which holds names that the process chose."""

from __future__ import annotations

import io

from collectors.formats import Input
from collectors.formats.stacks.pyspy_json import read
from collectors.records import block


def parse(data: bytes, source: str) -> bytes:
    """Return a block with the stacks of one dump."""
    return block.encode(read(Input(source, io.BytesIO(data), data[:4096])))
