"""Every event as a CloudEvent (version 1.0, structured JSON), in order, one request each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from collectors.records.printable import printable, printable_json
from service.adapters import sink
from service.adapters.following import StateFile, StatePath, follow
from service.client import Connection, Say, StreamEvent, resource
from service.reports.instants import rfc3339

MEDIA_TYPE = "application/cloudevents+json; charset=utf-8"
TYPE_PREFIX = "io.faulthound."


def run(
    connection: Connection, say: Say, to_url: sink.To, state: StatePath = Path("faulthound-cloudevents.json"),
    sink_token_file: sink.TokenFile = None, public: sink.Public = None,
) -> None:  # fmt: skip
    """Post every event as a CloudEvent (1.0, structured JSON), in order, until it is stopped.

    Each event is posted at least once, always with the same source and id. Without a state file it
    begins with the next event.

    \b
    Examples:
      faulthound adapter cloudevents --to https://events.example/faulthound --token-file read.token
      faulthound adapter cloudevents --to http://broker-ingress/default --state /var/lib/fh/events.json
    """
    source = sink.page_address(public, connection)
    with sink.opened(to_url, sink_token_file, connection, say) as receiver:

        def forward(event: StreamEvent) -> None:
            document = cloud_event(event, source, _verdict(connection, event))
            receiver.post(printable_json(msgspec.json.encode(document)).encode(), MEDIA_TYPE)

        follow(connection, StateFile(state), say, forward)


def cloud_event(event: StreamEvent, source: str, verdict: Any | None = None) -> dict[str, Any]:
    """Return an event as a CloudEvent. ``source`` and ``id`` together identify it, however often it is posted."""
    of_incident = "incident." if event.incident is not None else ""
    subject = event.incident or event.job
    data = msgspec.to_builtins(event) | ({"verdict": verdict} if verdict is not None else {})
    document = {
        "specversion": "1.0",
        "id": str(event.sequence),
        "source": source,
        "type": f"{TYPE_PREFIX}{of_incident}{event.kind}",
        "time": rfc3339(event.at),
        "datacontenttype": "application/json",
        "data": data,
    }
    return document | ({"subject": printable(subject)} if subject else {})


def _verdict(connection: Connection, event: StreamEvent) -> Any | None:
    """Return the verdict document that was published; None for other events, and where the service no longer has it."""
    version = event.details.get("version")
    if event.kind != "published" or event.incident is None or not isinstance(version, int):
        return None
    return connection.find(resource("incidents", event.incident, "verdict"), version=version)
