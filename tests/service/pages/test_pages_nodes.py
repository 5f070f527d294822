"""The page of nodes: who is not fit and why, what is foreign stays text, and how many should stand by."""

from __future__ import annotations

import pytest

from analyzers.remediation.node_history import NodeRecord, Trial, record_trial
from service.clock import now
from service.remediation import node_records
from tests.support.remediation_rows import NODES, cleared, seeded
from tests.support.served import Client


@pytest.fixture
def client(running_service: Client) -> Client:
    """Return a client of a service of which nothing is remembered."""
    cleared(running_service.service.database)
    return running_service


def test_a_fleet_without_trouble_says_so(client: Client) -> None:
    """Without nodes that are not fit the page is calm, and says why no standby is asked for."""
    shown = client.get("/nodes").text

    assert '<body class="calm">' in shown
    assert "All are fit." in shown
    assert "nothing that a standby could replace" in shown


def test_who_is_not_fit_is_shown_with_the_reason(client: Client) -> None:
    """A proposal makes its node suspected, a record makes another out; both stand there, and in the JSON behind the page."""
    seeded(client.service.database, client.service.remedies)
    trial = Trial(probability=0.9, began_at=now() - 60, ended_at=now(), outcome="cured", note="<script>1</script>")
    with client.service.database.transaction() as session:
        record = record_trial(NodeRecord(node=NODES[2]), trial, client.service.weights())
        node_records.write_record(session, record, now())

    shown = client.get("/nodes").text

    assert '<body class="busy">' in shown
    assert f"<code>{NODES[1]}</code>" in shown
    assert f"<code>{NODES[2]}</code>" in shown
    assert NODES[0] not in shown
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    states = {one["node"]: one["state"] for one in client.get("/v1/fleet/records").json()["items"]}
    assert states == {NODES[1]: "suspected", NODES[2]: "out"}


def test_the_page_is_in_the_navigation(client: Client) -> None:
    """Every page leads to it, and it leads back to itself after signing in."""
    for path in ("/", "/holds", "/remediations"):
        assert '<a href="/nodes">' in client.get(path).text
    assert "/sign-in?to=/nodes" in client.get("/nodes").text
