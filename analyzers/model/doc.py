"""The description of a field, once and beside it: ``Annotated[float, doc("UTC seconds.")]``. The API's schema shows it."""

from __future__ import annotations

import msgspec


def doc(text: str) -> msgspec.Meta:
    """Return a field's description."""
    return msgspec.Meta(description=text)
