"""Lists a page at a time. An opaque cursor names the last item, so that new and deleted rows shift nothing."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from fastapi import Query

from analyzers.model.doc import doc
from service.api.problems import Problem

MOST = 1_000
Item = TypeVar("Item")
Row = TypeVar("Row")
Key = TypeVar("Key")

Limit = Annotated[int, Query(ge=1, le=MOST, description="Most items of a page.")]
After = Annotated[str | None, Query(max_length=1_000, description="The `next` of the page before.")]


class Page(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """A part of a list, and the cursor of the next part."""

    items: Annotated[tuple[Item, ...], doc("The items of this page.")]
    next: Annotated[str | None, doc("Send it as `after` for the next page; null: this is the last.")] = None


def page(rows: Sequence[Row], limit: int, key: Callable[[Row], Any], shown: Callable[[Row], Item]) -> Page[Item]:
    """Return one page of rows that were asked for with one more than the limit."""
    rows, following = cut(rows, limit, key)
    return Page(items=tuple(map(shown, rows)), next=following)


def cut(rows: Sequence[Row], limit: int, key: Callable[[Row], Any]) -> tuple[Sequence[Row], str | None]:
    """Return the rows of one page and its ``next``; the rows were asked for with one more than the limit."""
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], to_cursor(key(rows[limit - 1]))


def to_cursor(key: Any) -> str:
    """Return a key as a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def from_cursor(cursor: str | None, type: type[Key]) -> Key | None:
    """Return the key of a cursor; a cursor that no page gave is a problem."""
    if cursor is None:
        return None
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key = msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        key = None
    parts: Iterable[object] = key if isinstance(key, tuple) else (key,)
    if key is None or not all(map(_is_storable, parts)):
        raise Problem("invalid", "after: not a cursor of this list: send the `next` of a page, unchanged")
    return key


def _is_storable(part: object) -> bool:
    """Return whether every database takes this as a value."""
    return 0 <= part < 1 << 63 if isinstance(part, int) else not (isinstance(part, str) and "\x00" in part)


def from_row(row: Any, type: type[Item]) -> Item:
    """Return the struct of a row of the store, by the names of the struct's fields."""
    return msgspec.convert(row, type, from_attributes=True)
