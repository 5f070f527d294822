"""Options that several verbs share, and those of ``faulthound diagnose``: their names, bounds and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Paths = Annotated[
    list[Path],
    Argument(
        metavar="PATH...",
        readable=False,
        help="Files and folders of one job; archives are opened; - is standard input.",
    ),
]
HostList = Annotated[
    str | None,
    Option(
        metavar="FILE|HOSTLIST",
        help="Where the ranks run: line N of a file names rank N's host; the hosts of gpu-[01-04] share the ranks evenly, "
        "but only where the files state how many ranks there are: else give --ranks-per-node too.",
    ),
]
RanksPerNode = Annotated[
    int | None, Option(min=1, max=1024, metavar="N", help="Ranks 0 to N-1 share a node, and so on.")
]
Attempt = Annotated[int | None, Option(min=0, metavar="N", help="Judge this attempt of the job instead of the newest.")]
Job = Annotated[str | None, Option("--job", metavar="NAME", help="Judge this job, where the files are of several.")]
Json = Annotated[bool, Option("--json", help="Print the verdict document (docs/verdict.md).")]
Html = Annotated[Path | None, Option(metavar="FILE", help="Write the report as one self-contained page.")]
Expect = Annotated[
    list[str] | None,
    Option(metavar="FIELD=VALUE", help="Exit with 1 unless the verdict has this; repeatable (see above)."),
]
KnowledgePath = Annotated[
    Path | None,
    Option(metavar="FILE|DIR", help="TOML that overrides rows of the packaged knowledge of the same name."),
]
Workers = Annotated[
    int | None, Option(min=1, max=256, metavar="N", help="Processes that read files; chosen by size if left out.")
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print nothing but errors on stderr.")]
NoColor = Annotated[bool, Option("--no-color", help="No colours; NO_COLOR does the same.")]
Limit = Annotated[int | None, Option(min=1, metavar="N", help="No more than these.")]
