"""Typed views of a knowledge document: its rows as a frozen struct, or one sentence about what is wrong with them."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from analyzers.knowledge import Knowledge

T = TypeVar("T", bound=msgspec.Struct)


class KnowledgeRowError(ValueError):
    """A document has a row that cannot be meant."""


def typed(knowledge: Knowledge, document: str, kind: type[T]) -> T:
    """Return a document's rows as a struct; rows that it does not ask for are left out."""
    try:
        return msgspec.convert(dict(knowledge.table(document)), kind)
    except msgspec.ValidationError as problem:
        raise KnowledgeRowError(f"knowledge {document}.toml: {problem}: correct that row or leave it out") from None
