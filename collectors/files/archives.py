"""Archives give their members one at a time, as bounded streams; an index that lies costs nothing.

The tar headers are read here rather than with the standard library, which holds every member and reads an extended header
of any declared length into memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, BinaryIO

from collectors.files.streams import CHUNK_BYTES, Budget, Exceeded, Take

BLOCK_BYTES = 512
LONGEST_NAME_BYTES = 1 << 16


class Unwanted(Exception):
    """The archive is of a known kind that is not opened; the message names it."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive. ``take`` is valid until the next member is asked for."""

    name: str
    size: int
    at: float | None
    take: Take


class _Rest:
    """The unread bytes of the member at hand."""

    def __init__(self, take: Take, size: int) -> None:
        self._take = take
        self.left = size

    def read(self, size: int) -> bytes:
        data = self._take(min(size, self.left)) if self.left and size else b""
        if not data and self.left and size:
            raise EOFError(f"the archive stops {self.left:,} bytes before the end of this member")
        self.left -= len(data)
        return data

    def all(self, most: int) -> bytes:
        if self.left > most:
            raise ValueError(f"a tar header declares a name of {self.left:,} bytes; {most:,} are read")
        return b"".join(iter(lambda: self.read(CHUNK_BYTES), b""))

    def skip(self) -> None:
        while self.read(CHUNK_BYTES):
            pass


def _number(field: bytes) -> int:
    if field[0] & 0x80:  # GNU: base 256 where octal digits do not suffice
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.split(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        raise ValueError(f"a tar header holds {field[:12]!r} where a number belongs") from None


def _text(field: bytes) -> str:
    return field.split(b"\0")[0].decode(errors="replace")


def _pax(data: bytes) -> dict[str, str]:
    """Parse "length key=value newline" entries; what does not parse is left out."""
    found: dict[str, str] = {}
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or not 0 < int(length) <= len(data):
            break
        key, equals, value = data[len(length) + 1 : int(length)].rstrip(b"\n").partition(b"=")
        if equals:
            found[key.decode(errors="replace")] = value.decode(errors="replace")
        data = data[int(length) :]
    return found


def tar_members(take: Take) -> Iterator[Member]:
    """Yield the regular files of a tar stream in their order: ustar, GNU long names, pax."""
    extended: dict[str, str] = {}
    while True:
        header = _header(take)
        if not header.strip(b"\0"):
            return
        if header[257:262] != b"ustar":
            raise ValueError("a tar header is expected here and there is none")
        size, kind = _number(header[124:136]), header[156:157]
        if extended.get("size", "").isdigit():
            size = int(extended["size"])
        rest = _Rest(take, size)
        if kind in b"xLg":
            if kind == b"x":
                extended |= _pax(rest.all(LONGEST_NAME_BYTES))
            elif kind == b"L":
                extended["path"] = _text(rest.all(LONGEST_NAME_BYTES))
        else:
            prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
            name = extended.get("path") or (f"{prefix}/" if prefix else "") + _text(header[:100])
            extended = {}
            if kind in (b"0", b"\0", b"7"):
                yield Member(name, size, float(_number(header[136:148])), rest.read)
        rest.skip()
        _Rest(take, -size % BLOCK_BYTES).skip()


def _header(take: Take) -> bytes:
    """Read one header block; a tar that ends without its two empty blocks ends all the same."""
    header = b""
    while len(header) < BLOCK_BYTES and (data := take(BLOCK_BYTES - len(header))):
        header += data
    if 0 < len(header) < BLOCK_BYTES:
        raise EOFError("the archive stops inside a header")
    return header


class _Guarded(io.RawIOBase):
    """A seekable file that refuses a single read larger than the zip index may be."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self._most = most

    def seekable(self) -> bool:
        """Return True: zipfile asks."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move as the file does."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position, as the file does."""
        return self._file.tell()

    def read(self, size: int = -1) -> bytes:
        """Read as the file does, up to the bound."""
        if size > self._most:
            raise Exceeded(f"its index is {size:,} bytes long and {self._most:,} are read: unpack it by hand")
        return self._file.read(size if size >= 0 else self._most)


def zip_members(file: BinaryIO, budget: Budget) -> Iterator[Member]:
    """Yield the files of a zip in the order of its index; raise ``ValueError`` where it is damaged."""
    import zipfile

    try:
        archive = zipfile.ZipFile(_Guarded(file, budget.limits.zip_index_bytes))
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(str(error) or "the zip index is damaged") from error
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if any(entry.filename.endswith("/data.pkl") for entry in entries):
        raise Unwanted("a PyTorch checkpoint, which holds no evidence")
    for entry in entries:  # a zip's own times are in a time zone that it does not name, so they are not used
        yield Member(entry.filename, entry.file_size, None, _zip_take(archive, entry, budget))


def _zip_take(archive: Any, entry: Any, budget: Budget) -> Take:
    import zipfile

    opened: list[IO[bytes]] = []

    def read(size: int) -> bytes:
        try:
            if not opened:
                if entry.flag_bits & 1:
                    raise ValueError("it is encrypted: unpack it by hand")
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"its compression method {entry.compress_type} is not read: unpack it by hand")
                opened.append(archive.open(entry))
            data = opened[0].read(size)
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise ValueError(str(error)) from error
        budget.spend(len(data))
        return data

    return read
