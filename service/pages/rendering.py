"""Renders a template into a response with a strict content security policy."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import jinja2
from fastapi.responses import HTMLResponse

from analyzers.remediation.types import UNBEGUN, UNDER_WAY
from service.clock import now
from service.pages.stops import NOTHING_STOPS, Stops
from service.pages.visitors import Visitor
from service.reports import history, html, remediations, timeline_entries
from service.reports.instants import clock, moment, rfc3339, span

MOST_HOLD_HOURS = 24 * 28
RELOAD_SECONDS = 10  # of a page that may change


def response(
    template: str,
    twin: str,
    *,
    visitor: Visitor | None = None,
    stops: Stops = NOTHING_STOPS,
    goes_on: bool = False,
    paused: bool = False,
    status: int = 200,
    notice: str = "",
    **shown: Any,
) -> HTMLResponse:
    """Render a page. ``twin``: its JSON; ``goes_on``: it may change, and reloads unless it is paused.

    ``notice``: the outcome of a form that was sent; it comes first.
    """
    page = _environment().get_template(template).render(
        style=html.jinja2_safe(_style()), twin=twin, now=now(), clock=clock, entry_text=timeline_entries.entry_text,
        paused=goes_on and paused, again_seconds=RELOAD_SECONDS if goes_on and not paused else 0, visitor=visitor,
        stops=stops, plans=remediations, notice=notice, open_statuses=UNBEGUN | UNDER_WAY,
        most_hold_hours=MOST_HOLD_HOURS, advised=history.advised, **shown,
    )  # fmt: skip
    return HTMLResponse(page, status, _headers())


@cache
def _environment() -> jinja2.Environment:
    found = html.environment("service.pages", "service.reports")
    found.filters["instant"] = lambda at: moment(rfc3339(at))
    found.filters["span"] = span
    return found


@cache
def _style() -> str:
    report, own = resources.files("service.reports"), resources.files("service.pages")
    return report.joinpath("report.css").read_text("utf-8") + own.joinpath("pages.css").read_text("utf-8")


@cache
def _headers() -> dict[str, str]:
    allowed = f"default-src 'none'; style-src '{html.digest(_style())}'; img-src data:"
    return {
        "Content-Security-Policy": f"{allowed}; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        # Not no-referrer: a browser would then not say either from where a form was sent, and every form be refused.
        "Referrer-Policy": "same-origin",
    }
