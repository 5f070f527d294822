"""Exports of a span of time: what is in a bundle, what it says is missing, and what pins keep."""

from __future__ import annotations

import io
import time
from pathlib import Path

import httpx
import pytest
from sqlalchemy.orm import Session

from collectors.files.reading import read_paths
from collectors.formats import registry
from collectors.records import Placement, block, bundle
from service.api import spans
from service.settings import Settings
from service.store import retention
from service.store.log import Stored
from service.store.models import Batch, Cursor
from service.store.retention import Retention, Swept
from tests.service.api.test_api_resources import JOB, placed, running
from tests.support.gray_fleet import GrayFleet, named, on, pci, verdict_on
from tests.support.served import Client


def test_a_bundle_has_what_was_sent(client: Client) -> None:
    """An export is a bundle of the job's nodes: byte for byte what they sent, in order, and nothing of other nodes."""
    running(client)
    client.ship("gpu-0003", [placed("gpu-0003", 0, job="other")])
    client.put(
        f"/v1/jobs/{JOB}",
        json={"world_size": 4, "nodes": ["gpu-0001"] * 2 + ["gpu-0002"] * 2, "roles": {"trainer": "0-3"}},
    )

    manifest, declared, *batches = bundle.read(io.BytesIO(client.get(f"/v1/jobs/{JOB}/export").content))

    assert isinstance(manifest, bundle.Manifest)
    assert (manifest.job, manifest.attempt, manifest.nodes) == (JOB, 0, ("gpu-0001", "gpu-0002"))
    assert manifest.missing == ()
    assert isinstance(declared, bundle.Batch)
    (placement,) = block.decode(declared.block)
    assert isinstance(placement, Placement)
    assert placement.roles == ("trainer",) * 4
    log = client.service.log.read_from(0, 10)
    assert [(one.sequence, one.block) for one in batches if isinstance(one, bundle.Batch)] == [
        (one.sequence, one.block) for one in log if one.node != "gpu-0003"
    ]
    assert "bundle" in {format.name for format in registry()}


def test_a_bundle_names_the_devices_of_its_readings(client: Client, tmp_path: Path) -> None:
    """Agents send what a node has hourly: an export of later minutes has it, so that GPUs of a model are compared."""
    running(client)
    fleet = GrayFleet(change=on(1, 3, width=8), names=("gpu-0001", "gpu-0002"))
    for node, name in enumerate(fleet.names):
        client.ship(name, fleet.devices(node), "devices")
        client.eventually(f"/v1/nodes/{name}", lambda found: len(found["devices"]) == fleet.gpus)
    time.sleep(0.01)
    since = time.time()
    for node, name in enumerate(fleet.names):
        client.ship(name, fleet.samples(node, since - 600.0), "samples")
    path = tmp_path / "bundle.fhz"
    path.write_bytes(client.get(f"/v1/jobs/{JOB}/export", params={"since": since}).content)

    verdict = verdict_on(list(read_paths([str(path)])))

    assert named(verdict) == [("node", "gpu-0002", (pci(3),))]
    assert verdict.action.kind == "probe"


def removed(client: Client, before: int) -> None:
    """Have retention delete the oldest batches for their age, up to the n-th of the log, and leave their rows."""
    log = read_by_all(client)
    swept = Swept(log_bytes=sum(len(one.block) for one in log))
    with client.service.database.session() as session:
        kept = retention._kept(session)
    rules = Retention(client.service.database, Settings())
    rules._sweep_batches(swept, kept, log[before].received_at, most_bytes=swept.log_bytes)


def read_by_all(client: Client) -> list[Stored]:
    """Return the log once all its readers have come to its end."""
    log = client.service.log.read_from(0, 100)
    with client.service.database.transaction() as session:
        session.merge(Cursor(reader="compaction", sequence=log[-1].sequence))
    client.eventually("/readyz", lambda _: client.service.follower.sequence == log[-1].sequence)
    return log


def missing(client: Client, since: float) -> str:
    """Return what an export of the job says that it has not."""
    content = client.get(f"/v1/jobs/{JOB}/export", params={"since": since}).content
    manifest = next(bundle.read(io.BytesIO(content)))
    assert isinstance(manifest, bundle.Manifest)
    return "; ".join(manifest.missing)


def test_a_bundle_says_what_is_missing(client: Client) -> None:
    """Nodes that sent nothing in the span, and what retention removed from it, are named in the manifest."""
    running(client)
    first, second = client.service.log.read_from(0, 10)
    removed(client, 1)

    reported = missing(client, first.received_at - 1)

    assert reported.startswith("the service no longer has every record from")
    assert "retention removed what was received before" in reported
    assert "pinned" not in reported
    assert "nothing came in this span from 1 of the job's nodes: gpu-0001" in reported
    assert "retention" not in missing(client, second.received_at)


def test_a_pin_hides_nothing_that_was_removed(client: Client) -> None:
    """Where the oldest batch is pinned and a later one removed, the export says so; an export of after it does not."""
    running(client)
    first, _ = client.service.log.read_from(0, 10)
    pin = {"since": first.received_at - 1, "until": first.received_at + 0.001, "reason": "kept"}
    assert client.post("/v1/pins", json=pin).status_code == 201
    time.sleep(0.01)
    for number in (2, 3):
        client.ship("gpu-0002", [placed("gpu-0002", 2, 3)], f"b{number}")
    removed(client, 3)
    left = client.service.log.read_from(0, 10)

    assert [one.batch_id for one in left] == ["b1", "b3"]
    assert missing(client, first.received_at - 1).endswith("but for what is pinned")
    assert missing(client, left[1].received_at) == "nothing came in this span from 1 of the job's nodes: gpu-0001"


def test_a_bundle_names_the_nodes_that_gave_up_records(client: Client) -> None:
    """Where the log was too large, the node that had most of it gave its oldest: exports of its jobs say so, until then."""
    running(client)
    for number in range(2, 8):
        time.sleep(0.01)
        client.ship("gpu-0002", [placed("gpu-0002", 2, 3)], f"b{number}")
    log = read_by_all(client)
    bound = sum(len(one.block) for one in log) - len(log[1].block)
    Retention(client.service.database, Settings().model_copy(update={"retention_bytes": bound})).sweep()
    left = client.service.log.read_from(0, 10)

    assert [one.batch_id for one in left if one.node == "gpu-0001"] == ["b1"]
    assert "b1" not in [one.batch_id for one in left if one.node == "gpu-0002"]
    reported = missing(client, log[0].received_at - 1)
    assert "removed records of nodes that had more than their share of the log" in reported
    assert reported.endswith("gpu-0002")
    assert "share" not in missing(client, left[-1].received_at)


def test_an_export_that_retention_overtakes_breaks_off(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is deleted while the export streams ends it as an error: half of it is not taken for the whole."""
    running(client)
    _, second = client.service.log.read_from(0, 10)
    sizes = spans.sizes

    def late(session: Session, span: spans.ExportSpan) -> dict[str, int]:
        promised = sizes(session, span)
        with client.service.database.transaction() as other:
            other.delete(other.get(Batch, second.sequence))
        return promised

    monkeypatch.setattr(spans, "sizes", late)
    with pytest.raises(httpx.RemoteProtocolError):
        client.get(f"/v1/jobs/{JOB}/export")
    assert client.get("/healthz").status_code == 200


def test_an_export_has_bounds(client: Client) -> None:
    """A span that is empty or longer than the setting, and a job that nobody knows, are refused."""
    running(client)
    path = f"/v1/jobs/{JOB}/export"

    assert client.get(path, params={"since": 10, "until": 5}).status_code == 422
    assert client.get(path, params={"since": 0, "until": 1e9}).status_code == 413
    assert client.get(path, params={"since": "nan"}).status_code == 422
    assert client.get("/v1/jobs/none/export").status_code == 404


def test_a_pin_comes_and_goes(client: Client) -> None:
    """A pin is listed until it is removed, and both are in the audit log."""
    wish = {"job": JOB, "since": 10.0, "until": 20.0, "reason": "incident 7"}
    pin = client.post("/v1/pins", json=wish)

    assert pin.status_code == 201
    assert client.get("/v1/pins").json()["items"] == [pin.json()]
    assert client.post("/v1/pins", json={**wish, "until": 10.0}).status_code == 422
    assert client.delete(f"/v1/pins/{pin.json()['id']}").status_code == 204
    assert client.delete(f"/v1/pins/{pin.json()['id']}").status_code == 404
    kinds = [one["kind"] for one in client.get("/v1/events").json()["items"]]
    assert kinds == ["pin_removed", "pin_made"]
