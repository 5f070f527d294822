"""Names and texts from the wire, made fit for a column."""

from __future__ import annotations


def clean(text: str, longest: int) -> str:
    """Return the text without NUL and lone surrogates, which PostgreSQL refuses, and cut to the column's width."""
    return text[:longest].replace("\x00", "").encode("utf-8", "replace").decode()
