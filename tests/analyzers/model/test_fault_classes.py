"""The table of fault classes: every class that an analyzer claims has a row, and every row is claimed, known and true."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import pytest

from analyzers.knowledge import Knowledge, xids
from analyzers.model.fault_class import ActionKind, FaultClass, Trait
from analyzers.model.fault_classes import FAULT_CLASSES, fault_class, hardware_action, in_words
from analyzers.model.finding import Cause, Finding, Kind, Suspect
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from analyzers.verdict.build import compose
from analyzers.verdict.correlate import combine
from service.packaged_knowledge import load

REPOSITORY = Path(__file__).parents[3]
ANALYZERS = REPOSITORY / "analyzers"
KNOWLEDGE = ANALYZERS / "knowledge"


def claims_in(folder: Path) -> set[str]:
    """The classes that the code of a folder gives to anything called fault_class; of an f-string, with * for its holes."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py"))]
    places: dict[str, set[int]] = {}
    for name, place in (found for tree in trees for found in _parameters(tree)):
        places.setdefault(name, set()).add(place)
    return {said for tree in trees for value in _values(tree, places) for said in _constants(value)}


def _parameters(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each function or record with a parameter or field ``fault_class``, and its place among the arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
        elif isinstance(node, ast.ClassDef):
            names = [item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and _named(item.target)]
        else:
            continue
        if "fault_class" in names:
            yield node.name, names.index("fault_class")


def _named(target: ast.expr) -> bool:
    return isinstance(target, ast.Name)


def _values(tree: ast.AST, places: dict[str, set[int]]) -> Iterator[ast.expr]:
    """Yield every expression that becomes a fault class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "fault_class")
            yield from (node.args[place] for place in places.get(function, ()) if len(node.args) > place)
        elif isinstance(node, ast.Assign) and "fault_class" in ast.unparse(node.targets[0]).strip("()").split(", "):
            yield node.value
        elif isinstance(node, ast.FunctionDef) and node.name.endswith("fault_class_of"):
            yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None)


def _constants(value: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may be; what it compares or looks up is none of them."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in value.values)
    elif isinstance(value, ast.IfExp):
        yield from _constants(value.body)
        yield from _constants(value.orelse)
    elif isinstance(value, ast.BinOp):
        yield from _constants(value.left)
    elif isinstance(value, ast.Tuple):  # fault_class, cause = "slow_host", "unknown"
        yield from _constants(value.elts[0])


def claimed() -> set[tuple[str, str]]:
    """Every (analyzer, class) that the code and the crash table can claim."""
    found = {
        (folder.name, said)
        for folder in sorted((ANALYZERS / "diagnosis").iterdir())
        if folder.is_dir() and folder.name != "__pycache__"
        for said in claims_in(folder)
    }
    found |= {("roles", said) for said in claims_in(ANALYZERS / "model")}  # its rules serve the live detector too
    found |= {("verdict", said) for said in claims_in(ANALYZERS / "verdict")} | {("verdict", "analyzer_failed")}
    table = tomllib.loads((KNOWLEDGE / "crash.toml").read_text(encoding="utf-8"))
    return found | {("crash", row["class"]) for spreads in table["cause"].values() for row in spreads.values()}


def rows_for(said: str) -> list[FaultClass]:
    """The row of a class, or of one with * for what only a record tells."""
    exact = [row for row in FAULT_CLASSES if row.name == said]
    return exact or [row for row in FAULT_CLASSES if fnmatchcase(said, row.name)]


def test_every_class_that_is_claimed_has_a_row_that_names_its_analyzer() -> None:
    """No analyzer claims a class that the table does not know, or that it gives to others only."""
    missing = {
        (analyzer, said)
        for analyzer, said in claimed()
        if not any(analyzer in row.claimed_by for row in rows_for(said))
    }

    assert missing == set()


def test_every_row_is_claimed_by_each_analyzer_it_names() -> None:
    """No row is left of a class that nobody claims any more."""
    found = {(analyzer, row.name) for analyzer, said in claimed() for row in rows_for(said)}

    assert {(analyzer, row.name) for row in FAULT_CLASSES for analyzer in row.claimed_by} <= found


def test_rows_are_unique_and_traits_are_used() -> None:
    """A name stands once, every trait belongs to a row, and a row says its words."""
    names = [row.name for row in FAULT_CLASSES]

    assert len(names) == len(set(names))
    assert {trait for row in FAULT_CLASSES for trait in row.traits} == set(get_args(Trait))
    assert all(row.words and row.causes and row.claimed_by for row in FAULT_CLASSES)
    assert all((row.strongest == "evict") >= bool(row.proof) for row in FAULT_CLASSES)


def strongest(row: FaultClass, cause: Cause) -> str:
    """What a verdict does about one suspect of this class, as sure as may be, with no other evidence."""
    name = {"xid_*": "xid_54", "sxid_*": "sxid_12028", "ecc_dbe*": "ecc_dbe_remap"}.get(row.name)
    name = name or row.name.replace("*", "1_fatal_then_reboot" if row.name == "nvlink5_*" else "ecc")
    hardware = "hardware" in row.claimed_by
    instances = ("0",) if row.claimed_by == ("roles",) else ()
    kind: Kind = "device" if hardware else "rank"
    suspect = Suspect(kind=kind, strength=0.99, why="it", ranks=(0,), instances=instances)
    family = "hardware" if hardware else "waits"
    finding = Finding(
        analyzer=row.claimed_by[0], family=family, symptom="hang", cause=cause, fault_class=name, suspects=(suspect,)
    )
    shape = Topology((0, 1, 2, 3))
    return compose(combine([finding], shape), Window(), shape, load()).action.kind


@pytest.mark.parametrize("row", FAULT_CLASSES, ids=lambda row: row.name)
def test_the_strongest_action_is_what_a_verdict_does_at_most(row: FaultClass) -> None:
    """Of all the causes that a class may have, the strongest action is the row's, and none is stronger."""
    order = get_args(ActionKind)
    if row.strongest == "none" and set(row.causes) & {"none", "unknown"}:
        return  # it names no suspect: there is nothing to do
    done = [strongest(row, cause) for cause in row.causes]

    assert max(done, key=order.index) == row.strongest, done


def test_knowledge_speaks_of_classes_that_exist() -> None:
    """What a restart cures, and what a hardware event asks for, is stated of classes that are claimed."""
    cures = tomllib.loads((KNOWLEDGE / "plan.toml").read_text(encoding="utf-8"))["cures"]
    asked = tomllib.loads((KNOWLEDGE / "xid.toml").read_text(encoding="utf-8"))["fault_class"]
    said = {said.removesuffix("*").rstrip("_") for _, said in claimed()}

    unknown = [name for name in cures if not any(each.startswith(name.removesuffix("*").rstrip("_")) for each in said)]
    assert unknown == []
    assert [name for name in asked if name != "sxid" and not fault_class(name).claimed_by] == []
    assert all(xids.action_for(name, load()) in get_args(ActionKind) for name in asked)


def test_a_hardware_event_asks_for_a_probe_at_most_where_no_table_has_it() -> None:
    """Only a row of the table, which has a source, takes a node out; a class of no action, or of no row, gets none."""
    tables = {"xid": {"fault_class": {"disk_error": "evict"}}}

    assert hardware_action("disk_error", Knowledge(tables)) == "evict"
    assert [hardware_action(name, Knowledge()) for name in ("disk_error", "machine_check")] == ["probe"] * 2
    assert hardware_action("stuck_together", Knowledge()) == "none"
    assert [hardware_action(name, Knowledge()) for name in ("xid_79", "nvlink_74_ignore", "of_a_site")] == ["none"] * 3


def test_a_class_of_no_row_is_shown_and_allows_nothing() -> None:
    """A site's own class, or one of a later version, is written as it is and is no proof."""
    row = fault_class("of_another_version")

    assert (row.strongest, row.proof, row.traits) == ("none", "", ())
    assert in_words("of_another_version") == "of another version"
    assert in_words("xid_79_then_reset") == "Xid 79 then reset"
