"""``faulthound read``: the records that the readers see in a file, the first thing to try when a verdict surprises."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli import exit_codes
from service.cli.speech import Speech

if TYPE_CHECKING:
    from collectors.records import Record

ENTRIES_FOR_PEOPLE = 10


def read(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", readable=False, help="Files and folders; archives are opened.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON lines, one record each.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help=f"Newest entries shown of each dump or series of steps ({ENTRIES_FOR_PEOPLE}; all with --json).",
        ),
    ] = None,
) -> None:
    """Print the records that the readers see in files: kind, time, node, rank and the kind's own fields.

    A time marked (file) is the file's own, where its text states none. What was not read is printed
    with the reason. A flight-recorder dump is one record whose collectives are its entries, the steps
    of a log are one of which each step is an entry.

    \b
    Examples:
      faulthound read dumps/_dump_7
      faulthound read kern.log --json | jq 'select(.code == 79)'
      faulthound read dumps/ --json --limit 5
    """
    speech = Speech()
    for file in files:
        if not file.exists() and not file.is_symlink():
            speech.error(f"{file} does not exist: name a file or a folder")
            raise typer.Exit(exit_codes.USAGE)
    readable = (
        _print_json(files, limit) if json else _print_table(files, ENTRIES_FOR_PEOPLE if limit is None else limit)
    )
    if not readable:
        named = ", ".join(map(str, files[:3]))
        speech.error(f"nothing readable in {named}: `faulthound formats` lists what can be read and how to make it")
        raise typer.Exit(exit_codes.USAGE)


def _print_json(files: list[Path], limit: int | None) -> bool:
    import msgspec

    from service.cli.output import print_document
    from service.cli.record_rows import as_fields

    readable = False
    for record in _records(files):
        readable |= not _unread(record)
        # Foreign text may hold lone surrogates, which JSON cannot: the encoder below would refuse the record.
        line = msgspec.json.encode(as_fields(record, limit))
        print_document(line)
    return readable


def _print_table(files: list[Path], limit: int) -> bool:
    from collectors.records.printable import printable
    from service.cli.output import print_table
    from service.cli.record_rows import as_row, entry_table

    records = list(_records(files))
    if records:
        print_table(("kind", "time", "node", "rank", "what", "source"), [as_row(record) for record in records])
    for record in records:
        head, rows = entry_table(record, limit)
        if rows:
            sys.stdout.write(f"\n{printable(record.source)}: the newest {len(rows)} entries\n")
            print_table(head, rows)
    return any(not _unread(record) for record in records)


def _records(files: list[Path]) -> Iterator[Record]:
    from collectors.files import reading

    yield from reading.read_paths(files)


def _unread(record: Record) -> bool:
    from collectors.records import Unread

    return isinstance(record, Unread)
