"""The verdict as one self-contained page: no network, no inline event handlers, everything foreign escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

import jinja2

from analyzers import stacks as stacks_analyzer
from analyzers.knowledge import Knowledge
from analyzers.topology import Topology
from analyzers.verdict import Verdict, to_json
from analyzers.window import Window
from service.telling import story, text
from service.telling.hostlists import rank_ranges, ranks_for_people
from service.telling.instants import clock, moment
from service.telling.rank_map import CELL, RankMap, rank_map
from service.telling.rank_states import RankStates, rank_states
from service.telling.stack_groups import StackGroup, stack_groups
from service.telling.timeline import LANES, timeline
from service.telling.waits import Wait, most_missed, oldest_waits

MOST_SVG_RANKS = 2000  # beyond, the map is drawn on a canvas
MOST_WAITS = 60  # rows of the tables; the document at the end has no such bound
FEW_WAITS = 12  # rows before the rest are folded
MOST_STACKS = 40
MOST_EVENTS = 300
MOST_CALLOUTS = 12
MOST_TEXT = 600  # characters of one foreign text
MOST_DOCUMENT_BYTES = 1_000_000


def page(verdict: Verdict, window: Window, topology: Topology, knowledge: Knowledge | None = None) -> str:
    """Return the whole page; with knowledge, stack groups say what their processes are doing."""
    waits = _culprits_first(verdict, oldest_waits(window, topology))
    guilty = {rank for culprit in verdict.culprits for rank in culprit.ranks}
    stacks = _suspects_first(verdict, stack_groups(window))[:MOST_STACKS]
    states = rank_states(verdict, window, topology, waits)
    laid_out = rank_map(topology, states.ranks)
    style, script = _asset("report.css"), _asset("report.js")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(
        clip=_clip, sentence=text.sentence, ranges=ranks_for_people, moment=moment, grouped="{:,}".format
    )
    return environment.from_string(_asset("report.html")).render(
        v=verdict,
        story=story,
        tone=story.tone(verdict),
        headlines=story.headlines(verdict),
        reasons=text.reasons(verdict),
        style=jinja2_safe(style),
        script=jinja2_safe(script),
        style_hash=_digest(style),
        script_hash=_digest(script),
        states=states,
        map=laid_out,
        cell=CELL,
        svg=0 < len(states.ranks) <= MOST_SVG_RANKS,
        scale=round(1 / laid_out.pixel, 3),
        cells=list(_cells(laid_out, states, topology)) if len(states.ranks) <= MOST_SVG_RANKS else [],
        callouts=_callouts(laid_out, states),
        data=_embedded(_map_data(laid_out, states, topology, waits)),
        waits=[_shown(wait, waits, states) for wait in waits[:MOST_WAITS]],
        few_waits=FEW_WAITS,
        guilty=guilty,
        named={str(rank) for rank in guilty},
        waits_left=max(0, len(waits) - MOST_WAITS),
        missed=[(topology.label(rank), count) for rank, count in most_missed(waits)[:6] if count > 1],
        stacks=stacks,
        duties=_duties(stacks, window, topology, knowledge),
        stacks_left=max(0, len(stack_groups(window)) - MOST_STACKS),
        lanes=LANES,
        timeline=timeline(verdict, window, waits),
        most_events=MOST_EVENTS,
        clock=clock,
        document=_document(verdict),
        ranges_of=rank_ranges,
    )


def _culprits_first(verdict: Verdict, waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
    """Move up, among equals, the waits that lack a named rank, or where nobody lacks, that hold one."""
    named = {rank for culprit in verdict.culprits for rank in culprit.ranks}
    return tuple(
        sorted(waits, key=lambda wait: (not wait.missing, not named.intersection(wait.missing or wait.entered)))
    )


def _suspects_first(verdict: Verdict, groups: tuple[StackGroup, ...]) -> tuple[StackGroup, ...]:
    named = {rank for culprit in verdict.culprits for rank in culprit.ranks}
    return tuple(sorted(groups, key=lambda group: not named.intersection(group.ranks)))


def _duties(
    groups: tuple[StackGroup, ...], window: Window, topology: Topology, knowledge: Knowledge | None
) -> list[str]:
    """Say for each group what its ranks are doing, in the words of the analyzer of stacks."""
    if knowledge is None or not groups:
        return ["" for _ in groups]
    duty = {
        rank: known.duty.replace("_", " ")
        for known in stacks_analyzer.stack_groups(window, topology, knowledge)
        for rank in known.ranks
    }
    return [" or ".join(dict.fromkeys(duty[rank] for rank in group.ranks if rank in duty)) for group in groups]


def jinja2_safe(own: str) -> Any:
    """Mark the project's own style or script as safe: nothing foreign is ever put into them."""
    import markupsafe

    return markupsafe.Markup(own)  # noqa: S704


def _asset(name: str) -> str:
    return resources.files("service.telling").joinpath(name).read_text("utf-8")


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _clip(value: str) -> str:
    shown = text.printable(str(value))
    return shown if len(shown) <= MOST_TEXT else f"{shown[:MOST_TEXT]} …"


def _embedded(data: object) -> Any:
    """Encode data for a script element of type JSON: with no ``<`` in it, nothing inside can end the element."""
    return jinja2_safe(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026"))


def _document(verdict: Verdict) -> str:
    document = to_json(verdict).decode()
    if len(document) <= MOST_DOCUMENT_BYTES:
        return document
    return document[:MOST_DOCUMENT_BYTES] + "\n… cut here; `faulthound diagnose --json` prints all of it"


def _cells(laid_out: RankMap, states: RankStates, topology: Topology) -> Iterable[dict[str, Any]]:
    for rank in states.ranks:
        x, y = laid_out.cells[rank]
        state = states.states[states.of_rank[rank]]
        yield {"rank": rank, "x": x, "y": y, "state": state, "silent": rank in states.silent,
               "title": f"{topology.label(rank)}: {state.meaning}"}  # fmt: skip


def _callouts(laid_out: RankMap, states: RankStates) -> list[tuple[int, int, int]]:
    named = [state for state in states.states if state.style in ("culprit", "suspect")]
    ranks = [rank for state in named for rank in state.ranks]
    return [(rank, *laid_out.cells[rank]) for rank in ranks[:MOST_CALLOUTS]]


def _map_data(laid_out: RankMap, states: RankStates, topology: Topology, waits: tuple[Wait, ...]) -> dict[str, Any]:
    """Return what the script draws and reads out: columns, because 16,384 objects would be ten times the bytes."""
    used = sorted({states.waits[rank] for rank in states.ranks if rank in states.waits})
    place = {index: position for position, index in enumerate(used)}
    nodes = {name: index for index, name in enumerate(dict.fromkeys(topology.nodes.values()))}
    dimensions = list(dict.fromkeys(name for rank in states.ranks[:64] for name in topology.coordinates.get(rank, {})))
    return {
        "width": laid_out.width,
        "height": laid_out.height,
        "cell": CELL,
        "ranks": list(states.ranks),
        "x": [laid_out.cells[rank][0] for rank in states.ranks],
        "y": [laid_out.cells[rank][1] for rank in states.ranks],
        "state": [states.of_rank[rank] for rank in states.ranks],
        "silent": [int(rank in states.silent) for rank in states.ranks],
        "node": [nodes.get(topology.nodes.get(rank, ""), -1) for rank in states.ranks],
        "nodes": list(nodes),
        "dimensions": dimensions,
        "coordinates": [
            [topology.coordinates.get(rank, {}).get(name, -1) for rank in states.ranks] for name in dimensions
        ],
        "wait": [place.get(states.waits.get(rank, -1), -1) for rank in states.ranks],
        "waits": [_clip(_sentence(waits[index]))[:160] for index in used],
        "states": [[state.style, state.glyph, state.meaning] for state in states.states],
        "labels": [[label.x, label.y, label.text, int(label.row)] for label in laid_out.labels],
        "callouts": [list(callout) for callout in _callouts(laid_out, states)],
        "scale": 1 / laid_out.pixel,
    }


def _sentence(wait: Wait) -> str:
    which = f" {wait.sequence}" if wait.sequence is not None else ""
    who = f", {story.plural_ranks(wait.missing, 3)} missing" if wait.missing else ", nobody missing"
    return f"{wait.operation}{which} of {wait.group}{who}"


def _shown(wait: Wait, waits: tuple[Wait, ...], states: RankStates) -> dict[str, Any]:
    named = {rank for state in states.states if state.style == "culprit" for rank in state.ranks}
    began = min((one.since_ns for one in waits if one.since_ns > 0), default=0)
    return {
        "wait": wait,
        "since": clock(wait.since_ns / 1e9) if wait.since_ns > 0 else "not recorded",
        "after": f"+{(wait.since_ns - began) / 1e9:,.3f} s" if wait.since_ns > 0 else "",
        "heads": tuple(rank for rank in wait.missing if rank in named or rank not in {*states.waits, *wait.silent}),
        "unheard": tuple(rank for rank in wait.silent if rank not in named),
        "waiting_too": tuple(rank for rank in wait.missing if rank in states.waits and rank not in named),
    }
