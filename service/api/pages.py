"""Lists a page at a time: an opaque cursor names the last thing seen, so that what comes and goes shifts nothing."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from fastapi import Query
from pydantic import BaseModel, Field

from service.api.problems import Problem

MOST = 1_000
Item = TypeVar("Item")
Row = TypeVar("Row")
Key = TypeVar("Key")

Limit = Annotated[int, Query(ge=1, le=MOST, description="Most things of a page.")]
After = Annotated[str | None, Query(max_length=1_000, description="The `next` of the page before.")]


class Page(BaseModel, Generic[Item]):
    """A part of a list, and the cursor of what follows."""

    items: list[Item]
    next: str | None = Field(None, description="Give it as `after` for the next page; null: this is the last.")


def cut(rows: Sequence[Row], limit: int, key: Callable[[Row], Any]) -> tuple[Sequence[Row], str | None]:
    """Return one page and its ``next`` of rows that were asked for with one more than the limit."""
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], to_cursor(key(rows[limit - 1]))


def to_cursor(key: Any) -> str:
    """Return a key as a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def from_cursor(cursor: str | None, type: type[Key]) -> Key | None:
    """Return the key that a cursor stands for; a cursor that no page gave is a problem."""
    if cursor is None:
        return None
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key = msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, binascii.Error, ValueError) as error:
        raise Problem(
            "invalid", "after: this is no cursor of this list: give the `next` of a page, unchanged"
        ) from error
    if not all(_is_fit(part) for part in (key if isinstance(key, tuple) else (key,))):
        raise Problem("invalid", "after: this is no cursor of this list: give the `next` of a page, unchanged")
    return key


def _is_fit(part: object) -> bool:
    """Return whether every database takes this as a value."""
    return 0 <= part < 1 << 63 if isinstance(part, int) else not (isinstance(part, str) and "\x00" in part)
