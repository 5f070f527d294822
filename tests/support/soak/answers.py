"""All that the service has said and stored of the jobs, read over REST when everything is over."""

from __future__ import annotations

import io
import time
from array import array
from collections.abc import Iterator
from math import isnan
from typing import Any

import httpx

from collectors.records import ProcessState, Steps
from collectors.records.block import decode
from collectors.records.bundle import Batch, read

PAGE = "200"
WAITING = frozenset({"proposed", "approved", "claimed"})


def items(client: httpx.Client, path: str, **query: str) -> list[dict[str, Any]]:
    """Return every item of a list, page by page."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        answer = client.get(path, params={**query, "limit": PAGE, **({"after": after} if after else {})})
        answer.raise_for_status()
        page = answer.json()
        found += page["items"]
        after = page.get("next")
        if not after:
            return found


def wait_until_closed(url: str, least_seconds: float, most_seconds: float) -> None:
    """Wait until no incident and no proposal is open, for so long at least and at most."""
    begun_at = time.monotonic()
    with httpx.Client(base_url=url, timeout=120) as client:
        while (waited := time.monotonic() - begun_at) < most_seconds:
            waiting = any(one["status"] in WAITING for one in items(client, "/v1/remediations"))
            if waited >= least_seconds and not waiting and not items(client, "/v1/incidents", status="open"):
                return
            time.sleep(2.0)


def fetch(url: str) -> dict[str, Any]:
    """Return incidents with their versions and timelines, remediations, and what each job showed of itself."""
    with httpx.Client(base_url=url, timeout=120) as client:
        incidents = items(client, "/v1/incidents")
        for row in incidents:
            row["symptoms"] = client.get(f"/v1/incidents/{row['id']}").json()["symptoms"]
            row["versions"] = sorted(
                items(client, f"/v1/incidents/{row['id']}/verdicts"), key=lambda version: version["version"]
            )
            row["timeline"] = items(client, f"/v1/incidents/{row['id']}/timeline")
        jobs = [row["name"] for row in items(client, "/v1/jobs")]
        return {
            "at": client.get("/v1/now").json()["at"],
            "incidents": incidents,
            "remediations": items(client, "/v1/remediations"),
            "shown": {job: _shown(client, job) for job in jobs},
        }


def _shown(client: httpx.Client, job: str) -> dict[str, Any]:
    """Return when a job's steps ended and its processes with a failure, by the records that the service has of it."""
    answer = client.get(f"/v1/jobs/{job}/export")
    if answer.status_code != httpx.codes.OK:
        return {"steps": [], "seen": [], "failed": []}
    steps, seen, failed = [], [], []
    for record in _records(answer.content):
        if isinstance(record, Steps):
            # A line without a time of its own was seen when it was read.
            steps += [record.at if isnan(at) else at for at in array("d", record.columns["at"])]
        elif isinstance(record, ProcessState) and record.at is not None:
            seen.append(record.at)
            if record.exit_code or record.signal:
                failed.append(record.at)
    return {
        "steps": sorted(at for at in steps if at is not None),
        "seen": [min(seen), max(seen)] if seen else [],
        "failed": sorted(failed),
    }


def _records(bundle: bytes) -> Iterator[Any]:
    for entry in read(io.BytesIO(bundle)):
        if isinstance(entry, Batch):
            yield from decode(entry.block)
