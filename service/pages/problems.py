"""``/docs/rest.md``: where the ``type`` of a problem leads, with a heading for each kind."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from service.api.problems import TABLE
from service.pages.rendering import response

router = APIRouter(include_in_schema=False)


@router.get("/docs/rest.md", response_class=HTMLResponse)
def problems_page() -> HTMLResponse:
    """Show the kinds of problems; who has no token yet may read them too."""
    return response("problems.html", "/openapi.json", kinds=TABLE)
