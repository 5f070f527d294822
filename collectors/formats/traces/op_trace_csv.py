"""A CSV table of operations: worker, step, operation, start and duration. Read without pandas or pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from collectors.formats import Input, reader
from collectors.formats.traces.csv_rows import header_of, is_table, rows, whole
from collectors.formats.traces.op_columns import (
    LONGEST,
    MOST_ROWS,
    MOST_STRINGS,
    MOST_WORKERS,
    WHOLE,
    Meaning,
    WorkerColumns,
    is_place,
    left_out,
    meaning,
    no_operations,
    of_one_job,
    refuse_two_hosts,
)
from collectors.records import Record


@dataclass(slots=True)
class CsvRows:
    """What rows gave; ``damaged``: those that are no operation, ``over``: those beyond the bounds."""

    workers: dict[tuple[int, int, int, str], WorkerColumns] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    rows: int = 0
    damaged: int = 0
    over: int = 0


def _sniff(head: bytes, _source: str) -> int:
    missing = meaning(header_of(head)).missing
    if len(missing) == 1:  # to report which column it lacks, where no other reader knows it
        return 6 if is_table(head) else 0
    return 0 if missing else 95


@reader(
    "op_trace_csv", made_by="a profiler's table of operations, as CSV", sniff=_sniff,
    gives="what each rank ran in each step, and for how long",
)  # fmt: skip
def read(input: Input) -> Iterator[Record]:
    """Yield one record a worker, and what was left out."""
    header = header_of(input.head)
    meant, gathered = meaning(header), CsvRows()
    if meant.missing:
        raise no_operations(header, meant.missing)
    place = {column: index for index, column in enumerate(header)}
    for row in rows(input.stream):
        _add(gathered, row, meant, place)
    of_one_job(gathered.jobs)
    _find_moved(gathered)
    for worker in gathered.workers.values():
        yield from worker.records(source=input.source, at=input.at, told_by="op_trace")
    yield from left_out(input.source, gathered.damaged, gathered.over)


def _find_moved(gathered: CsvRows) -> None:
    """Mark who was on several hosts; raise Damaged where most steps of a rank were."""
    hosts: dict[tuple[int, int, int], list[WorkerColumns]] = {}
    for (rank, dp, pp, _), worker in gathered.workers.items():
        hosts.setdefault((rank, dp, pp), []).append(worker)
    for (rank, _, _), several in hosts.items():
        steps: dict[int, set[str]] = {}
        for worker in several if len(several) > 1 else ():
            worker.moved = True
            for step in set(worker.columns["step"]) if worker.node else ():
                steps.setdefault(step, set()).add(worker.node or "")
        refuse_two_hosts(rank, steps)


def _add(gathered: CsvRows, row: list[str], meant: Meaning, place: dict[str, int]) -> None:
    try:
        numbers = {name: whole(row[place[meant.columns[name]]]) for name in WHOLE if name in meant.columns}
        place_of = (numbers.get("rank", -1), numbers.get("dp", -1), numbers.get("pp", -1))
        seconds = float(row[place[meant.columns["duration"]]]) * meant.factors["duration"]
        started = _number(row, meant, place, "started") * meant.factors.get("started", 1.0)
        operation = row[place[meant.columns["operation"]]][:200]
        texts = {n: row[place[meant.columns[n]]][:200] for n in ("node", "device_model", "job") if n in meant.columns}
        work = _number(row, meant, place, "work")
    except (ValueError, IndexError, KeyError, OverflowError):
        gathered.damaged += 1
        return
    key, counts = (*place_of, texts.get("node", "")), (numbers.get("microbatch", -1), numbers.get("chunk", -1))
    if not (
        is_place(*place_of)
        and 0 <= seconds <= LONGEST
        and all(-1 <= one < 1 << 31 for one in (*counts, numbers.get("cp", -1)))
    ):
        gathered.damaged += 1
        return
    too_many = (key not in gathered.workers and len(gathered.workers) >= MOST_WORKERS) or gathered.rows >= MOST_ROWS
    if too_many or (operation not in gathered.names and len(gathered.names) >= MOST_STRINGS):
        gathered.over += 1
        return
    gathered.rows += 1
    gathered.names.add(operation)
    if key not in gathered.workers:
        places = zip(("dp", "pp", "cp"), (*place_of[1:], numbers.get("cp", -1)), strict=True)
        coordinates = {name: value for name, value in places if value >= 0}
        gathered.workers[key] = WorkerColumns(key[0] if key[0] >= 0 else None, coordinates, texts.get("node") or None,
                                       texts.get("device_model", ""))  # fmt: skip
    if texts.get("job") and len(gathered.jobs) < MOST_STRINGS:
        gathered.jobs.add(texts["job"])
    gathered.workers[key].add(operation, numbers.get("step", -1), started, seconds, *counts, work)


def _number(row: list[str], meant: Meaning, place: dict[str, int], name: str) -> float:
    text = row[place[meant.columns[name]]].strip() if name in meant.columns else ""
    return float(text) if text else float("nan")
