"""``faulthound formats``: what can be read, and what makes it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def formats(
    json: Annotated[bool, typer.Option("--json", help="Print a JSON array of name, made_by and gives.")] = False,
) -> None:
    """List the formats that are read, the command that makes each, and what it gives.

    \b
    Examples:
      faulthound formats
      faulthound formats --json
    """
    from collectors.formats import registry

    rows = [{"name": known.name, "made_by": known.made_by, "gives": known.gives} for known in registry()]
    if json:
        import msgspec

        sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows)).decode() + "\n")
        return
    from service.cli.output import print_table

    print_table(("format", "gives", "made by"), [(row["name"], row["gives"], row["made_by"]) for row in rows])
