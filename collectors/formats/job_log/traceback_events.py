"""A traceback as events: the exception that was the root, and what a library's words inside its message report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from signal import SIGTERM

import msgspec

from collectors.formats.job_log import log_marks, statements
from collectors.formats.job_log.families import network, ray, schedulers, serving, slurm
from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.shapes import event, events
from collectors.formats.job_log.tracebacks import Traceback, last_line
from collectors.formats.job_log.vocabularies import outside
from collectors.records import OF_SERVICES, LogEvent

OF_TITLE = "title"
TITLE_BYTES = 1024
_TITLE = re.compile(
    r"(?:#{1,3} )?.{0,160}?(?P<said>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): \S.{8,400})"
)
_REPORTED = frozenset({"exit", "torchrun_failure", "closing_signal"})
_OF_LAUNCHERS = re.compile(
    r"/bin/(?:torchrun|accelerate|deepspeed|llamafactory-cli|lightning|vllm|sglang|swift|axolotl|litgpt|lm_eval)$|torch/distributed/(?:run|launch|launcher/|elastic/)|"
    r"accelerate/commands/|deepspeed/launcher/|<frozen runpy>|/runpy\.py$|/(?:click|typer|fire)/"
)
_CLIENTS = (  # libraries that ask services and stores which are no part of a job: by their files, or in an exception's full name
    (
        outside.NO_ANSWER_OF_STORE,
        re.compile(
            r"(?:^|/)(?:(?:aio)?botocore|boto3|s3fs|gcsfs|adlfs|ossfs|google[./]cloud[./]storage|azure[./]storage|minio|oss2|fsspec[./]exceptions)[./]"
        ),
    ),
    (
        outside.NO_ANSWER,
        re.compile(
            r"(?:^|/)(?:huggingface_hub|modelscope/hub|transformers/utils/hub|datasets/(?:utils|download|load)|wandb|mlflow|comet_ml|"
            r"fsspec/implementations/http)[./_]"
        ),
    ),
)
_DAMAGED = "damaged_file"  # a decoder fails within itself first
_RANK = re.compile(r"Rank (\d{1,7}): ")  # Megatron's checks; in brackets it may be the rank inside a group
_REPEATED = re.compile(r" \[repeated \d{1,6}x across cluster\].{0,80}")  # Ray
QUOTED = (*network.SHAPES, *ray.SHAPES, *schedulers.SHAPES, *serving.ENGINE, *slurm.SHAPES)


def event_of(traceback: Traceback, head: Line, spawned: int | None) -> LogEvent:
    """A finished traceback as an event: the chain's root, and in the text what it led to."""
    shown = (
        f"{traceback.exception}: {traceback.message}".splitlines()[0][:400] if traceback.exception else "cut traceback"
    )
    if traceback.then:
        names = ", ".join(traceback.then)
        how = "during handling of which came" if traceback.link == "during handling" else "which caused"
        shown = f"{shown} ({how} {names})"
    whole = traceback.message
    return event(
        Line(traceback.line, "", head.stream, head.rank, head.local_rank, head.pid, head.node, head.task),
        "traceback",
        at=traceback.at,
        rank=_rank_of(head, spawned, whole),
        text=shown,
        exception=traceback.exception or None,
        message=whole or None,
        frames=traceback.frames,
        code=_code_of(f"{traceback.exception}: {whole}", traceback.then_said, traceback.files),
        peer=log_marks.peer_of(whole),
        timeout_ms=log_marks.timeout_of(whole),
    )


def _rank_of(line: Line, spawned: int | None, message: str) -> int | None:
    """Return the rank of an exception: by its line's prefix, its launcher's word, or the beginning of its message."""
    known = line.rank if line.rank is not None else spawned
    named = _RANK.match(message) if known is None else None
    return int(named[1]) if named else known


def names_service(line: Line) -> bool:
    """Whether the exception that a line is names a service outside of the job, or a store, as what failed."""
    found = last_line(line.text)
    code = _code_of(f"{found[1]}: {found[2]}", (), ()) if found else None
    return code is not None and code.startswith(OF_SERVICES)


def _code_of(said: str, then_said: Sequence[str], files: Sequence[str]) -> str | None:
    """Return the error that a chain names: what one of its exceptions says of a service or a file, else the first one's.

    ``files``: of its frames. They, or an exception's full name, show which library asked, and so what the other end is.
    """
    codes = [statements.code_of(each) if len(each) > len(": ") else None for each in (said, *then_said)]
    if named := next((code for code in codes if code and code.startswith((*OF_SERVICES, _DAMAGED))), None):
        return named
    if any("/torch/distributed/" in file for file in files):
        return codes[0]
    asked = (*files, said, *then_said)
    return next((name for name, library in _CLIENTS if any(map(library.search, asked))), codes[0])


def quoted_in(traceback: LogEvent, head: Line) -> Iterator[LogEvent]:
    """What an exception quotes of a library: NCCL's last warning stands below torch's words, Ray's reason in its message."""
    if traceback.exception is None and traceback.message is None:
        return  # it was cut before it said what it was
    whole = f"{traceback.exception}: {traceback.message or ''}"
    for text in whole.splitlines():
        for found in events(QUOTED, replace(head, text=text)):
            # Of what a daemon says of itself, and a program raises, the program has failed.
            yield msgspec.structs.replace(found, operation=None) if found.operation == "daemon" else found


def alone(line: Line) -> Iterator[LogEvent]:
    """Give the exception that a line is, if it is the last line of a traceback."""
    text = _REPEATED.sub("", line.text)
    if found := last_line(text.partition("\n")[0]):
        said = "\n".join((found[2], *text.splitlines()[1:]))
        yield event(
            line,
            "traceback",
            rank=_rank_of(line, None, said),
            exception=found[1],
            message=said,
            code=_code_of(f"{found[1]}: {said}", (), ()),
        )


def is_cut_of(line: Line, before: Line | None) -> bool:
    """Whether a line is the beginning of an exception that an earlier line holds whole."""
    here, there = last_line(line.text), last_line(before.text) if before else None
    return (
        here is not None
        and there is not None
        and here[1] == there[1]
        and here[2] != there[2]
        and there[2].startswith(here[2])
    )


def in_title(head: bytes, found: Sequence[LogEvent]) -> Line | None:
    """Return the exception in the title of a report, of which a paste cut the traceback before it said what it was."""
    title = head[:TITLE_BYTES].decode(errors="replace").lstrip().partition("\n")[0]
    said = _TITLE.match(title)
    if said is None or not found or any(each.event != "traceback" or each.exception for each in found):
        return None
    return Line(max(int(each.source) for each in found), said["said"], stream=OF_TITLE)


def may_stand(line: Line, found: Sequence[LogEvent]) -> bool:
    """Whether the last line of a traceback may stand for all of it: nothing else was found that could say more.

    That is: cut tracebacks of processes with ranks, or a launcher's report of exits after it, as Python's exceptions end.
    """
    cut = (line.rank is not None or line.stream == OF_TITLE) and all(
        each.event == "traceback" and not each.exception for each in found
    )
    reported = all(
        each.event == "creation_failed"
        or (
            (
                (each.event in _REPORTED and each.signal in {None, SIGTERM} and each.exit_code in {None, 1})
                or (each.event == "traceback" and all(_OF_LAUNCHERS.search(frame.file) for frame in each.frames))
            )
            and each.exception is None
            and int(each.source) > line.number
        )
        for each in found
    )
    return not found or cut or reported
