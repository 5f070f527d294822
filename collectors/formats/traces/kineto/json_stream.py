"""A JSON object with one long list in it, read a piece at a time: a profiler's trace may have a gigabyte of events.

An element that is no JSON costs itself: reading goes on at the next one. How much may be scanned twice for that is bounded
by what was read, so that no file takes longer than its length allows.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from collectors.formats import Damaged

CHUNK_BYTES = 1 << 20
LONGEST = 1 << 20  # characters of a value: a world group of 100,000 ranks has less
SCANNED_TWICE, SCANNED_FREELY = 16, 1 << 16  # times what was read, and characters

_BLANKS = re.compile(r"[ \t\r\n]*")
_ELEMENT = re.compile(r",\s*\{")
_DECODER = json.JSONDecoder()
_SPOILT = object()


class JsonStream:
    """``spoilt``: elements that are no JSON. ``cut``: the text ends before the list does."""

    def __init__(self, stream: BinaryIO, list_key: str) -> None:
        self._stream = stream
        self._list_key = list_key
        self._list = re.compile(rf'"{list_key}"\s*:\s*\[')
        self._bytes = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""
        self._at = 0
        self._passed = 0  # characters before the text that is held
        self._ended = False
        self._scanned_twice = 0
        self.spoilt = 0
        self.cut = False

    def members(self) -> Iterator[tuple[str, Any]]:
        """Yield each member of the object; the list's elements each under its key. A bare list is that list."""
        if self._peek() == "[":
            yield from self._elements()
            return
        self._at += 1
        while (mark := self._peek()) in (",", '"'):
            if mark == ",":
                self._at += 1
                continue
            key = self._value()
            if isinstance(key, str) and self._peek() == ":":
                self._at += 1
                if key == self._list_key and self._peek() == "[":
                    yield from self._elements()
                    continue
                if (value := self._value()) is not _SPOILT:
                    yield key, value
                    continue
            if not self._find(self._list):
                break
        self.cut = self.cut or mark != "}"

    def _elements(self) -> Iterator[tuple[str, Any]]:
        self._at += 1
        while (mark := self._peek()) != "]":
            if mark == ",":
                self._at += 1
            elif not mark:
                self.cut = True
                return
            elif (value := self._value()) is not _SPOILT:
                yield self._list_key, value
            elif not self._find(_ELEMENT):
                self.spoilt -= 1  # the last one is cut, not spoilt
                self.cut = True
                return
        self._at += 1

    def _peek(self) -> str:
        """Return the next character that is not blank; "" at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        """Return the next value and go on behind it; ``_SPOILT`` for what is no JSON."""
        self._peek()
        while len(self._text) - self._at < LONGEST and self._more():
            pass
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            # A string without an end was scanned to the end of the text; the error itself counts the lines before it.
            scanned = len(self._text) if error.msg.startswith("Unterminated") else error.pos
        except (ValueError, RecursionError):  # an integer of 5,000 digits, a list in a list in a list …
            scanned = len(self._text)
        else:
            return value
        self.spoilt += 1
        self._scanned_twice += scanned
        if self._scanned_twice > SCANNED_TWICE * (self._passed + self._at) + SCANNED_FREELY:
            raise Damaged(f"it is no JSON from character {self._passed + self._at:,} on")
        return _SPOILT

    def _find(self, pattern: re.Pattern[str]) -> bool:
        """Go to the next place of a pattern; return whether there is one."""
        self._at += 1
        while (found := pattern.search(self._text, self._at)) is None:
            self._at = max(self._at, len(self._text) - 64)
            if not self._more():
                return False
        self._at = found.start()
        return True

    def _more(self) -> bool:
        """Read on; return whether there was more."""
        while not self._ended:
            data = self._stream.read(CHUNK_BYTES)
            self._ended = not data
            if text := self._bytes.decode(data, self._ended):
                self._passed += self._at
                self._text = self._text[self._at :] + text
                self._at = 0
                return True
        return False
