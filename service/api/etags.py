"""ETags: a change names the version that it is for, so that no caller overwrites what it has not read."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

from service.api.problems import Problem

IfMatch = Annotated[str | None, Header(alias="If-Match", max_length=100, description="The ETag that is being changed.")]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", max_length=100, description="The ETag that the client has already.")
]


def etag(version: int) -> str:
    """Return the ETag of a version."""
    return f'"{version}"'


def check(if_match: str | None, version: int, what: str, path: str) -> None:
    """Raise the problem of a change that names no version, or an older one. ``path``: where it is read."""
    if if_match is None:
        raise Problem(
            "precondition-required", f"read {what} first (GET {path}), and send its ETag {etag(version)} as If-Match"
        )
    if if_match not in ("*", etag(version)):
        raise Problem(
            "precondition-failed",
            f"{what} is at version {etag(version)} now, not {if_match[:100]}: read it again (GET {path})",
        )
