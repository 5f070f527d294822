"""A template and what it shows become a response that no browser lets do anything else."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import jinja2
from fastapi.responses import HTMLResponse

from service.clock import now
from service.telling import happenings, html
from service.telling.instants import clock, moment, rfc3339

AGAIN_SECONDS = 10  # a page of something that goes on looks again


def response(template: str, twin: str, *, goes_on: bool, paused: bool, **shown: Any) -> HTMLResponse:
    """Render a page. ``twin``: its JSON; ``goes_on``: it may change, and is looked at again unless it is paused."""
    page = _environment().get_template(template).render(
        style=html.jinja2_safe(_style()), twin=twin, now=now(), clock=clock, said=happenings.said, paused=goes_on and paused,
        again_seconds=AGAIN_SECONDS if goes_on and not paused else 0, **shown,
    )  # fmt: skip
    return HTMLResponse(page, headers=_headers())


@cache
def _environment() -> jinja2.Environment:
    found = html.environment("service.pages", "service.telling")
    found.filters["instant"] = lambda at: moment(rfc3339(at))
    return found


@cache
def _style() -> str:
    report, own = resources.files("service.telling"), resources.files("service.pages")
    return report.joinpath("report.css").read_text("utf-8") + own.joinpath("pages.css").read_text("utf-8")


@cache
def _headers() -> dict[str, str]:
    allowed = f"default-src 'none'; style-src '{html.digest(_style())}'; img-src data:"
    return {
        "Content-Security-Policy": f"{allowed}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
    }
