"""docs/reference.md is what the code says of itself."""

from __future__ import annotations

from tests.support import reference
from tests.support.sources import REPOSITORY

PAGE = REPOSITORY / "docs" / "reference.md"


def test_the_reference_is_what_the_code_says(rewrite: bool) -> None:
    """The page has every setting, operation that changes, fault class and collector; `pytest --rewrite` brings it up to date."""
    if rewrite:
        PAGE.write_text(reference.page(), encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == reference.page()


def test_every_operation_but_those_of_health_needs_a_token() -> None:
    """The scopes of the page are those that the routes check."""
    scopes = reference.scopes()

    assert len(scopes) > 50
    assert {operation for operation, scope in scopes.items() if scope == reference.OPEN} == {
        "GET /healthz",
        "GET /readyz",
    }
