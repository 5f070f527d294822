"""Every happening as a CloudEvent (version 1.0, structured JSON), in order, one request each."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import msgspec

from service.adapters.following import AGAIN_SECONDS, AWAY, LONGEST_SECONDS, Happening, Patience, State, StateFile, read
from service.adapters.sink import Sink
from service.endings import Forbidden
from service.reports.instants import rfc3339
from service.speech import Speech

if TYPE_CHECKING:
    from service.client import Connection

MEDIA_TYPE = "application/cloudevents+json; charset=utf-8"
TYPE_PREFIX = "io.faulthound."


def forward(connection: Connection, sink: Sink, file: StateFile, source: str, speech: Speech) -> NoReturn:
    """Post what happens for as long as the process lives."""
    place, patience = file.load().after, Patience(speech)
    while True:
        try:
            with closing(read(connection, place, LONGEST_SECONDS)) as happenings:
                for at, happening in happenings:
                    patience.back()
                    if happening is not None:
                        event = cloud_event(happening, source, _verdict(connection, happening))
                        sink.post(msgspec.json.encode(event), MEDIA_TYPE)
                    if at != place:
                        place = at
                        file.save(State(after=place))
            time.sleep(AGAIN_SECONDS)  # the service has ended the stream
        except AWAY as problem:
            patience.away(problem)


def cloud_event(happening: Happening, source: str, verdict: Any | None = None) -> dict[str, Any]:
    """Return a happening as a CloudEvent. ``source`` and ``id`` together name it, however often it is sent."""
    of_incident = "incident." if happening.incident is not None else ""
    subject = happening.incident or happening.job
    data = msgspec.to_builtins(happening) | ({"verdict": verdict} if verdict is not None else {})
    event = {
        "specversion": "1.0",
        "id": str(happening.sequence),
        "source": source,
        "type": f"{TYPE_PREFIX}{of_incident}{happening.kind}",
        "time": rfc3339(happening.at),
        "datacontenttype": "application/json",
        "data": data,
    }
    return event | ({"subject": subject} if subject else {})


def _verdict(connection: Connection, happening: Happening) -> Any | None:
    """Return the verdict document that was published; None where there was none, or it is gone from the service."""
    version = happening.details.get("version")
    if happening.kind != "published" or happening.incident is None or not isinstance(version, int):
        return None
    try:
        return connection.get(f"/v1/incidents/{quote(happening.incident, safe='')}/verdict", version=version)
    except Forbidden as problem:
        if problem.status != 404:
            raise
        return None
