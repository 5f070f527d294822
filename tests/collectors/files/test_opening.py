"""Files are found and unpacked whatever they are called, and nothing in them costs more than its bound."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from collectors.files.opening import Limits, find, open_found, trouble
from collectors.formats import Input
from collectors.formats.text_lines import lines
from collectors.records import Unread

DUMP = b"\x80\x02 not really a dump " * 50


def tar_of(files: dict[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar with these files, as the standard library writes it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), 1_758_581_240
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    """A deflated zip with these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def opened_below(path: Path, limits: Limits | None = None) -> Iterator[Input | Unread]:
    """Walk, open and unpack."""
    limits = limits or Limits()
    for found in find([path], limits):
        yield from [found] if isinstance(found, Unread) else open_found(found, limits)


def contents(path: Path, limits: Limits | None = None) -> tuple[dict[str, bytes], list[Unread]]:
    """What opening a path gives, by source relative to it, and what it could not open."""
    read, unread = {}, []
    for opened in opened_below(path, limits):
        if isinstance(opened, Unread):
            unread.append(opened)
            continue
        data = opened.stream.read()
        assert data.startswith(opened.head)
        read[opened.source.removeprefix(str(path))] = data
        if ended := trouble(opened):
            unread.append(ended)
    return read, unread


@pytest.mark.parametrize(
    ("data", "inner"),
    [
        (DUMP, ""),
        (gzip.compress(DUMP), ""),
        (gzip.compress(DUMP[:100]) + gzip.compress(DUMP[100:]) + b"\0" * 9, ""),
        (zstd.compress(DUMP), ""),
        (zstd.compress(DUMP[:100]) + zstd.compress(DUMP[100:]), ""),
        (tar_of({"a/_dump_3": DUMP}), ":a/_dump_3"),
        (tar_of({"x" * 150 + "/_dump_3": DUMP}), ":" + "x" * 150 + "/_dump_3"),
        (tar_of({"ü" * 90 + "/_dump_3": DUMP}, tarfile.PAX_FORMAT), ":" + "ü" * 90 + "/_dump_3"),
        (tar_of({"y" * 120 + "/_dump_3": DUMP}, tarfile.USTAR_FORMAT), ":" + "y" * 120 + "/_dump_3"),
        (gzip.compress(tar_of({"a/_dump_3": DUMP})), ":a/_dump_3"),
        (zstd.compress(tar_of({"a/_dump_3": gzip.compress(DUMP)})), ":a/_dump_3"),
        (zip_of({"a/_dump_3": DUMP}), ":a/_dump_3"),
        (tar_of({"b.zip": zip_of({"_dump_3": DUMP})}), ":b.zip:_dump_3"),
    ],
    ids=["plain", "gz", "gz2", "zst", "zst2", "tar", "gnu", "pax", "ustar", "tar.gz", "tar.zst+gz", "zip", "tar+zip"],
)
def test_containers_are_known_by_their_bytes(tmp_path: Path, data: bytes, inner: str) -> None:
    """The same content comes out of every container, at a name that says nothing."""
    (tmp_path / "evidence").write_bytes(data)
    assert contents(tmp_path / "evidence") == ({inner: DUMP}, [])


def test_a_member_says_whose_it_is_and_when_it_was_written(tmp_path: Path) -> None:
    """Rank and time come from the archive's member, not from the archive."""
    (tmp_path / "dumps.tar").write_bytes(tar_of({"gpu-0413/_dump_3": DUMP}))
    (opened,) = opened_below(tmp_path)
    assert not isinstance(opened, Unread)
    assert (opened.rank, opened.node, opened.at) == (3, "gpu-0413", 1_758_581_240.0)


def test_a_folder_is_walked_in_order_and_links_are_read_once(tmp_path: Path) -> None:
    """Sorted files, each once; links to folders elsewhere are named and not followed, and a loop of them ends."""
    (tmp_path / "b").mkdir()
    for name in ("b/2", "b/1", "a"):
        (tmp_path / name).write_bytes(DUMP)
    (tmp_path / "0").symlink_to("b/1")
    (tmp_path / "b" / "loop").symlink_to(tmp_path)
    (tmp_path / "elsewhere").symlink_to("/usr")
    (tmp_path / "nowhere").symlink_to("nowhere")
    read, unread = contents(tmp_path)
    assert list(read) == ["/a", "/b/1", "/b/2"]
    assert [(Path(record.source).name, record.outcome) for record in unread] == [
        ("elsewhere", "refused"),
        ("nowhere", "empty"),
    ]


@pytest.mark.parametrize("cut", [30, 200, 400])
@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gz", "zst"])
def test_a_cut_container_gives_what_came_before(tmp_path: Path, cut: int, pack: object) -> None:
    """The bytes before the damage are read, and the damage is reported with its place."""
    data = os.urandom(3000)
    (tmp_path / "x").write_bytes(pack(data)[: -len(data) + cut])  # type: ignore[operator]
    read, unread = contents(tmp_path / "x")
    assert data.startswith(b"".join(read.values()))
    assert [record.outcome for record in unread] == ["damaged"]


def test_a_cut_tar_gives_its_whole_members(tmp_path: Path) -> None:
    """The members before the cut are read whole; the one that was cut is damaged."""
    data = tar_of({"_dump_0": DUMP, "_dump_1": DUMP})
    (tmp_path / "x.tar").write_bytes(data[: data.rindex(DUMP) + 60])
    read, unread = contents(tmp_path / "x.tar")
    assert read == {":_dump_0": DUMP, ":_dump_1": DUMP[:60]}
    assert "damaged" in {record.outcome for record in unread}


def test_limits_cut_and_say_so(tmp_path: Path) -> None:
    """A file over its limit is read up to it; too many files and too deep archives are named."""
    (tmp_path / "x").write_bytes(DUMP)
    (tmp_path / "y").write_bytes(gzip.compress(gzip.compress(gzip.compress(DUMP))))
    read, unread = contents(tmp_path, Limits(file_bytes=100, depth=2))
    assert read == {"/x": DUMP[:100]}
    assert [record.outcome for record in unread] == ["limit", "limit"]
    read, unread = contents(tmp_path, Limits(files=1))
    assert (list(read), [record.outcome for record in unread]) == (["/x"], ["limit"])


def test_the_limit_of_a_file_is_no_limit_for_a_file_of_that_size(tmp_path: Path) -> None:
    """A file of exactly the limit is whole."""
    (tmp_path / "x").write_bytes(DUMP)
    assert contents(tmp_path / "x", Limits(file_bytes=len(DUMP))) == ({"": DUMP}, [])


def test_what_is_not_opened_is_named(tmp_path: Path) -> None:
    """Unopened kinds of archive, an encrypted or odd zip and a checkpoint each say why they were left."""
    (tmp_path / "a.xz").write_bytes(b"\xfd7zXZ\x00 and so on")
    (tmp_path / "b.pt").write_bytes(zip_of({"archive/data.pkl": DUMP, "archive/data/0": DUMP}))
    read, unread = contents(tmp_path)
    assert not read
    assert ["xz is not opened" in unread[0].reason, "checkpoint" in unread[1].reason] == [True, True]


@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=20)), st.booleans()
)
def test_lines_are_those_of_the_text(texts: list[str], ended: bool) -> None:
    """Numbers and texts are those of splitting at newlines, of either kind."""
    data = "\r\n".join(texts) + ("\n" if ended and texts else "")
    expected = list(data.replace("\r\n", "\n").split("\n"))
    expected = expected[:-1] if not expected[-1] else expected
    assert list(lines(io.BytesIO(data.encode()))) == list(enumerate(expected, 1))


@pytest.mark.parametrize("length", [65_535, 65_536, 65_537, 300_000])
def test_a_long_line_is_cut_and_the_next_one_is_whole(length: int) -> None:
    """Of a line over the limit the beginning is kept, whatever the pieces it comes in; bytes that are no UTF-8 are marked."""
    data = b"x" * length + b"\nnext \xff\n"
    assert list(lines(io.BytesIO(data))) == [(1, "x" * min(length, 65_536)), (2, "next \ufffd")]
