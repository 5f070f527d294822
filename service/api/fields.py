"""What requests share: the base of their bodies, and fields with their bounds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, StringConstraints

NODE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$"
BATCH_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"
# No control characters: a log line stays one line, and every database takes it.
TEXT_PATTERN = r"^[^\x00-\x1f\x7f]*$"
ID_PATTERN = r"^[A-Za-z0-9_-]{1,32}$"
LATEST_AT = 1e11  # UTC seconds, the year 5138

NodeName = Annotated[str, StringConstraints(pattern=NODE_PATTERN)]
JobName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=TEXT_PATTERN)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=1_000, pattern=TEXT_PATTERN)]
OptionalText = Annotated[str, StringConstraints(max_length=1_000, pattern=TEXT_PATTERN)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=TEXT_PATTERN)]

NodePath = Annotated[str, Path(pattern=NODE_PATTERN, description="The node's name, as its agent reports it.")]
JobPath = Annotated[str, Path(min_length=1, max_length=255, pattern=TEXT_PATTERN, description="The job's name.")]
IdPath = Annotated[str, Path(pattern=ID_PATTERN, description="Its id.")]


class Body(BaseModel):
    """A request's body. It has no unknown fields, and no infinite numbers."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


Since = Annotated[
    float | None, Query(ge=0, le=LATEST_AT, allow_inf_nan=False, description="From this instant on, UTC seconds.")
]
Until = Annotated[
    float | None, Query(ge=0, le=LATEST_AT, allow_inf_nan=False, description="Before this instant, UTC seconds.")
]
AfterVersion = Annotated[int, Query(ge=0, lt=1 << 62, description="Only what changed after this version.")]
