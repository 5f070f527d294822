"""The verdict as one self-contained page: no network, no inline event handlers, everything foreign escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from importlib import resources
from typing import Any

import jinja2
import msgspec

from analyzers.knowledge import Knowledge
from analyzers.model import standings
from analyzers.model.topology import Topology
from analyzers.model.verdict import Verdict, to_json
from analyzers.model.window import Window
from collectors.records.printable import printable
from service.reports import advice, next_steps, story, text, unread
from service.reports.hostlists import ranks_for_people
from service.reports.instants import clock, moment
from service.reports.map_data import callouts, cells, map_data
from service.reports.rank_map import CELL, rank_map
from service.reports.rank_states import RankStates, rank_states
from service.reports.stack_groups import StackGroup, stack_groups
from service.reports.timeline import LANES, timeline
from service.reports.waits import Wait, most_missed, oldest_waits

MOST_SVG_RANKS = 2000  # beyond, the map is drawn on a canvas
MOST_MAP_RANKS = 131_072  # beyond, which no job has, there is only the table
MOST_WAITS = 60  # rows of the tables; the document at the end has no such bound
FEW_WAITS = 12  # rows before the rest are folded
MOST_STACKS = 40
MOST_EVENTS = 300
MOST_TEXT = 600  # characters of one foreign text
MOST_DOCUMENT_BYTES = 1_000_000
_COMMAND = re.compile(r"`([^`\n]{1,300})`")


def page(verdict: Verdict, window: Window, topology: Topology, knowledge: Knowledge | None = None) -> str:
    """Return the whole page; with knowledge, stack groups say what their processes are doing.

    Where roles share rank numbers, map, waits and stacks are of the role that the verdict leads with.
    """
    whole, role = verdict, ""
    if window.parts:
        role, verdict = _leading_role(verdict, window)
        window, topology = window.parts[role], topology.parts[role]
    waits = _culprits_first(verdict, oldest_waits(window, topology))
    guilty = {rank for culprit in verdict.culprits for rank in culprit.ranks}
    stacks = _suspects_first(verdict, stack_groups(window))[:MOST_STACKS]
    states = rank_states(verdict, window, topology, waits)
    drawn = states.ranks if len(states.ranks) <= MOST_MAP_RANKS else ()
    laid_out = rank_map(topology, drawn)
    style, script = _asset("report.css"), _asset("report.js")
    return (
        environment("service.reports")
        .get_template("report.html")
        .render(
            **shown(whole),
            role=role,
            style=jinja2_safe(style),
            script=jinja2_safe(script),
            style_hash=digest(style),
            script_hash=digest(script),
            states=states,
            map=laid_out,
            cell=CELL,
            drawn=bool(drawn),
            svg=len(drawn) <= MOST_SVG_RANKS,
            scale=round(1 / laid_out.pixel, 3),
            cells=list(cells(laid_out, states, topology)) if len(drawn) <= MOST_SVG_RANKS else [],
            callouts=callouts(laid_out, states),
            data=_embedded(map_data(laid_out, states, topology, waits)),
            waits=[_shown(wait, waits, states) for wait in waits[:MOST_WAITS]],
            few_waits=FEW_WAITS,
            guilty=guilty,
            waits_left=max(0, len(waits) - MOST_WAITS),
            missed=[(topology.label(rank), count) for rank, count in most_missed(waits)[:6] if count > 1],
            stacks=stacks,
            duties=_duties(stacks, window, topology, knowledge),
            stacks_left=max(0, len(stack_groups(window)) - MOST_STACKS),
            lanes=LANES,
            timeline=timeline(verdict, window, waits),
            most_events=MOST_EVENTS,
            clock=clock,
        )
    )


def _leading_role(verdict: Verdict, window: Window) -> tuple[str, Verdict]:
    """Return the role of the first culprit, else the largest, and of the verdict what is about its ranks."""
    largest = max(window.parts, key=lambda role: (verdict.coverage.roles.get(role, 0), role))
    role = next((one.role for one in verdict.culprits if one.role in window.parts), None) or largest
    own = msgspec.structs.replace(
        verdict,
        culprits=tuple(one for one in verdict.culprits if one.role == role),
        suspects=tuple(one for one in verdict.suspects if one.role == role),
        victims=msgspec.structs.replace(verdict.victims, ranks=verdict.victims.roles.get(role, "")),
    )
    return role, own


def environment(*packages: str) -> jinja2.Environment:
    """Return what renders the templates of these packages: everything foreign is escaped, and nothing may be left out."""
    found = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _template(packages, name)), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined, finalize=_finalized,
    )  # fmt: skip
    found.filters.update(
        clip=_clip,
        ticked=_ticked,
        sentence=text.sentence,
        ranges=ranks_for_people,
        moment=moment,
        grouped="{:,}".format,
    )
    return found


def shown(verdict: Verdict) -> dict[str, Any]:
    """Return what parts.html shows of a verdict."""
    return {
        "v": verdict,
        "story": story,
        "advice": advice,
        "next_steps": next_steps.next_steps,
        "before_collecting": next_steps.before_collecting,
        "leave": next_steps.leave,
        "unread": unread,
        "unrecorded": next_steps.unrecorded,
        "first_of_all": next_steps.first_of_all,
        "beside_plan": next_steps.beside_plan,
        "tone": story.tone(verdict),
        "headlines": story.headlines(verdict),
        "reasons": text.reasons(verdict),
        "named": {str(rank) for culprit in verdict.culprits for rank in culprit.ranks},
        "document": _document(verdict),
    }


def _template(packages: tuple[str, ...], name: str) -> str | None:
    return next((_asset(name, folder) for folder in packages if resources.files(folder).joinpath(name).is_file()), None)


def _culprits_first(verdict: Verdict, waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
    """Move up, among equals, the waits that lack a named rank, or where none lacks, that hold one."""
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
        for known in standings.stack_groups(window, topology, knowledge)
        for rank in known.ranks
    }
    return [" or ".join(dict.fromkeys(duty[rank] for rank in group.ranks if rank in duty)) for group in groups]


def jinja2_safe(own: str) -> Any:
    """Mark the project's own style or script as safe: nothing foreign is ever put into them."""
    import markupsafe

    return markupsafe.Markup(own)  # noqa: S704


def _asset(name: str, package: str = "service.reports") -> str:
    return resources.files(package).joinpath(name).read_text("utf-8")


def digest(content: str) -> str:
    """Return what a content security policy calls this style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _finalized(value: Any) -> Any:
    """Make every text that a template prints printable; what is marked as safe is the project's own."""
    return printable(value) if type(value) is str else value


def _clip(value: str) -> str:
    shown = printable(str(value))
    return shown if len(shown) <= MOST_TEXT else f"{shown[:MOST_TEXT]} …"


def _ticked(value: str) -> Any:
    """Escape a sentence, and show what it has between backticks as code."""
    return jinja2_safe(_COMMAND.sub(r"<code>\1</code>", escape(printable(str(value)), quote=True)))


def _embedded(data: object) -> Any:
    """Encode data for a script element of type JSON: with no ``<`` in it, nothing inside can end the element."""
    return jinja2_safe(json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026"))


def _document(verdict: Verdict) -> str:
    document = to_json(verdict).decode()
    if len(document) <= MOST_DOCUMENT_BYTES:
        return document
    return document[:MOST_DOCUMENT_BYTES] + "\n… cut here; `faulthound diagnose PATH --json` prints all of it"


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
