"""What is known of recorded incidents: ``labels.toml``, one format for folders, single files and bundles (docs/evaluate.md)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from analyzers.model.fault_classes import FAULT_CLASSES, fault_class
from analyzers.model.finding import Cause
from service.reports.hostlists import parse_ranks

FILE_NAME = "labels.toml"
Origin = Literal["real", "simulator"]
CAUSES: tuple[str, ...] = get_args(Cause)
KINDS = ("rank", "node", "device", "link", "switch", "group", "stage", "role", "code", "data", "library", "storage",
         "platform", "service")  # fmt: skip


class LabelError(ValueError):
    """A label is wrong: the file, the case, the value, and what is allowed."""


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[case]]`` as it is written."""

    fault: str
    cause: str | list[str]
    culprits: list[str]
    path: str = "."
    fault_class: str | list[str] = msgspec.field(name="class", default="")
    masked: list[str] = []
    decidable: bool = True
    origin: str = "real"
    leave_out: list[str] = []
    hosts: str | None = None
    ranks_per_node: int | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """Who is named: ranks by their numbers, anything else by kind and id."""

    ranks: frozenset[int] = frozenset()
    others: frozenset[tuple[str, str]] = frozenset()

    def __bool__(self) -> bool:
        """Whether anything is named."""
        return bool(self.ranks or self.others)

    def __or__(self, other: Named) -> Named:
        """Return both together."""
        return Named(self.ranks | other.ranks, self.others | other.others)


@dataclass(frozen=True, slots=True)
class Label:
    """One labelled case. ``culprits``: all that an answer must name; ``masked``: culprits that it may name too."""

    name: str
    paths: tuple[Path, ...]
    fault: str
    causes: tuple[str, ...]
    classes: tuple[str, ...]
    culprits: Named
    masked: Named
    decidable: bool
    origin: Origin
    hosts: str | None
    ranks_per_node: int | None


def read_labels(folder: Path, labels: Path | None) -> list[Label]:
    """Return every case at and below a folder; ``labels``: the only file, whose paths begin at the folder."""
    if labels is not None:
        return list(_cases(labels, folder, folder))
    files = sorted(folder.rglob(FILE_NAME))
    return [label for file in files for label in _cases(file, file.parent, folder)]


def _cases(file: Path, base: Path, folder: Path) -> Iterator[Label]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabelError(f"{file} cannot be read ({error.strerror or error}): name a file of labels") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LabelError(f"{file} is no TOML: {error}") from None
    cases = document.get("case")
    tables = isinstance(cases, list) and all(isinstance(case, dict) for case in cases)
    if set(document) != {"case"} or not cases or not tables:
        found = ", ".join(sorted(document)) or "nothing"
        raise LabelError(f"{file} holds {found}; allowed are one or more [[case]] tables and no more")
    for number, case in enumerate(cases, 1):
        try:
            yield _label(case, base, folder)
        except ValueError as problem:
            raise LabelError(f"{file}, case {number}: {problem}") from None


def _label(case: dict[str, Any], base: Path, folder: Path) -> Label:
    written = _written(case)
    path = base / written.path
    if not path.exists():
        raise ValueError(f"path {written.path!r}: there is no {path}; allowed is a file or folder below {base}")
    if written.origin not in get_args(Origin):
        raise ValueError(f"origin {written.origin!r} is unknown; allowed: {', '.join(get_args(Origin))}")
    return Label(
        name=_name(path, folder),
        paths=_paths(path, written.leave_out),
        fault=written.fault,
        causes=tuple(_cause(one) for one in _listed(written.cause)),
        classes=tuple(_class(one) for one in _listed(written.fault_class)),
        culprits=_named("culprits", written.culprits),
        masked=_named("masked", written.masked),
        decidable=written.decidable,
        origin="simulator" if written.origin == "simulator" else "real",
        hosts=None if written.hosts is None else _hosts(written.hosts, base),
        ranks_per_node=written.ranks_per_node,
    )


def _written(case: dict[str, Any]) -> _Written:
    fields = {field.encode_name for field in msgspec.structs.fields(_Written)}
    if unknown := sorted(set(case) - fields):
        raise ValueError(f"{unknown[0]!r} is no key of a case; allowed: {', '.join(sorted(fields))}")
    try:
        written = msgspec.convert(case, _Written)
    except msgspec.ValidationError as problem:
        raise ValueError(_wrong_type(case, str(problem))) from None
    if not written.fault or not written.cause:
        raise ValueError("fault and cause are empty; write what was wrong, and its cause")
    return written


def _wrong_type(case: dict[str, Any], problem: str) -> str:
    """Return what a value is and what is allowed, of a message such as "Expected `bool`, got `str` - at `$.decidable`"."""
    said, _, place = problem.partition(" - at `$.")
    key = place.rstrip("`").partition("[")[0]
    if key not in case:
        return f"{problem}; a case needs fault, cause and culprits"
    allowed = said.partition(", got")[0].removeprefix("Expected ").replace("`", "")
    words = {"bool": "true or false", "str": "a text", "array": "a list of texts", "int": "a number"}
    kinds = " or ".join(words.get(kind, kind) for kind in allowed.split(" | ") if kind != "null")
    return f"{key} {case[key]!r} is not allowed; allowed: {kinds}"


def _name(path: Path, folder: Path) -> str:
    shown = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
    return shown if shown != "." else folder.resolve().name


def _paths(path: Path, leave_out: Sequence[str]) -> tuple[Path, ...]:
    """Return what is read of a case: never its label, nor what gives the answer away."""
    if not path.is_dir():
        return (path,)
    without = {FILE_NAME, *leave_out}
    if missing := [name for name in leave_out if not (path / name).exists()]:
        raise ValueError(f"leave_out {missing[0]!r}: there is no such file in {path}; allowed are names of its files")
    inside = sorted(path.iterdir())
    kept = tuple(one for one in inside if one.name not in without)
    return (path,) if len(kept) == len(inside) else kept


def _hosts(hosts: str, base: Path) -> str:
    return str(base / hosts) if (base / hosts).is_file() else hosts


def _listed(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value] if value else []


def _cause(value: str) -> str:
    if value not in CAUSES:
        raise ValueError(f"cause {value!r} is unknown; allowed: {', '.join(CAUSES)}")
    return value


def _class(value: str) -> str:
    if not fault_class(value).claimed_by:
        names = [row.name for row in FAULT_CLASSES]
        near = get_close_matches(value, names, n=3) or names
        raise ValueError(f"class {value!r} is unknown; allowed: {', '.join(near)} (all: docs/reference.md)")
    return value


def _named(key: str, values: Sequence[str]) -> Named:
    ranks: set[int] = set()
    others: set[tuple[str, str]] = set()
    for value in values:
        kind, _, name = value.partition(":")
        if kind not in KINDS or not name:
            raise ValueError(
                f"{key} {value!r} is not KIND:ID; allowed kinds: {', '.join(KINDS)}; [] where no machine is at fault"
            )
        if kind == "rank":
            ranks.update(_ranks(key, value, name))
        else:
            others.add((kind, name))
    return Named(frozenset(ranks), frozenset(others))


def _ranks(key: str, value: str, name: str) -> Sequence[int]:
    try:
        return list(parse_ranks(name))
    except ValueError as problem:
        raise ValueError(f"{key} {value!r}: {problem}; allowed: rank:14 or rank:12-15") from None
