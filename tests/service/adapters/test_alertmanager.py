"""The adapter that forwards incidents and alarms to Alertmanager."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from analyzers.incidents.messages import Publish
from analyzers.model.incident import Cut
from service.adapters import alertmanager
from service.adapters.alertmanager import LEAST_SECONDS, Alerts, culprit
from service.adapters.following import StateFile
from service.adapters.sink import Sink
from service.cli.speech import Speech
from service.client import Connection, connected
from service.clock import now
from service.reports.instants import rfc3339
from service.store import incidents, timeline
from service.store.database import Database
from service.store.models import Alarm, Incident
from tests.service.adapters.test_adapters import ID
from tests.support import alertmanagers
from tests.support.bounds import in_time
from tests.support.incident_rows import AT, JOB, seed, verdict
from tests.support.served import Client
from tests.support.sinks import Receiver, adapter, begun, check_alerts


class Pager:
    """A teller and its sink: rounds as the process does them, without the waiting."""

    def __init__(self, connection: Connection, sink: Receiver, folder: Path) -> None:
        self.sink, self._connection = sink, connection
        self._file = StateFile(folder / "alertmanager.json")
        self.http = httpx.Client()
        self.now = AT + 1_000
        self.restart()

    def restart(self) -> None:
        """Begin as a process does that was killed."""
        posting = Sink(self.http, f"{self.sink.url}{alertmanager.PATH}", Speech().note)
        self._alerts = Alerts(self._connection, posting, self._file, "https://fh.example", lambda: self.now)

    def round(self) -> list[dict[str, Any]]:
        """Return what is reported now."""
        before = len(self.sink.taken)
        self._alerts._read(0, until_changed=False)
        self._alerts.post()
        reported = self.sink.taken[before:]
        assert len(reported) <= 1
        for request in reported:
            check_alerts(request)
        return reported[0] if reported else []


@pytest.fixture
def client(emptied: Client) -> Client:
    """Return a client of a service that the tests share."""
    return emptied


@pytest.fixture
def pager(client: Client, sink: Receiver, tmp_path: Path) -> Iterator[Pager]:
    """Return a pager."""
    with connected(client.url, None, None) as connection:
        pager = Pager(connection, sink, tmp_path)
        yield pager
        pager.http.close()


def close(database: Database, at: float, id: str = ID) -> None:
    """Close an incident."""
    with database.transaction() as session:
        incidents.close(session, id, at, "it moves again at step 101")
        timeline.add(session, at, "closed", id, JOB, {"because": "it moves again at step 101"})


def test_an_incident_is_an_alert(client: Client, pager: Pager) -> None:
    """Labels to route by, a sentence who did what, why and what to do, and a link to the page."""
    seed(client.service.database)

    [alert] = pager.round()

    assert alert["labels"] == {
        "alertname": "FaulthoundIncident", "incident": ID, "job": JOB, "kind": "hang", "cause": "machine",
        "culprit": "node:gpu-0002", "severity": "critical",
    }  # fmt: skip
    assert alert["annotations"] == {
        "summary": f"{JOB}: Node gpu-0002 (rank 3) hangs the job: almost certain (97 %)",
        "description": "Rank 3 never entered. Evict node gpu-0002.",
    }
    assert alert["startsAt"] == "2026-11-21T03:14:07.000Z"
    assert "endsAt" not in alert
    assert alert["generatorURL"] == f"https://fh.example/incidents/{ID}"
    assert pager.round() == [alert]  # reported again as long as it goes on


def test_an_incident_that_closes_is_resolved(client: Client, pager: Pager) -> None:
    """At its closing the same alert has an end and says why, once; a teller that was killed in between does the same."""
    seed(client.service.database)
    [before] = pager.round()
    close(client.service.database, AT + 900)
    pager.restart()

    [after] = pager.round()

    assert after["labels"] == before["labels"]
    assert after["startsAt"] == before["startsAt"]
    assert after["endsAt"] == rfc3339(AT + 900)
    assert after["annotations"]["description"].endswith("Closed: it moves again at step 101.")
    assert pager.round() == []


def test_a_short_incident_rings(client: Client, pager: Pager) -> None:
    """An incident that is closed seconds after its verdict, as a crash's is, keeps its alert for some minutes."""
    pager.round()
    seed(client.service.database, kind="crash", closed_at=AT + 12)

    [alert] = pager.round()

    assert alert["endsAt"] == rfc3339(AT + LEAST_SECONDS)
    assert pager.round() == []


def test_a_new_verdict_replaces_the_alert(client: Client, pager: Pager) -> None:
    """What has no verdict yet has an alert that says so; the verdict's, with other labels, comes and ends it."""
    database = client.service.database
    seed(database, verdicts=())
    [early] = pager.round()
    published = Publish(incident=ID, version=1, cut=Cut(after=0, through=1, at=AT), verdict=verdict())
    with database.transaction() as session:
        assert incidents.publish(session, published, AT + 5)

    later, ended = pager.round()

    assert "cause" not in early["labels"]
    assert early["annotations"]["description"] == "No step for 12.0 s; 8.0 s are its rhythm."
    assert (later["labels"]["culprit"], "endsAt" in later) == ("node:gpu-0002", False)
    assert (ended["labels"], ended["endsAt"]) == (early["labels"], rfc3339(pager.now))
    assert len(pager.round()) == 1


def test_the_fleets_incidents_and_alarms_are_told(client: Client, pager: Pager) -> None:
    """An infrastructure incident without a job, one that it explains, and an alarm that is over later."""
    database = client.service.database
    seed(database, "inc-00000000000f", job=None, kind="infrastructure")
    seed(database)
    with database.transaction() as session:
        row = session.get(Incident, ID)
        assert row is not None
        row.merged_into = "inc-00000000000f"
        raised = Alarm(kind="coverage", job=JOB, text="3 of 8 ranks are seen", nodes=[], raised_at=AT, over_at=None)
        session.add(raised)
        timeline.add(session, AT, "alarm", None, JOB, {})

    reported = {alert["labels"].get("incident", "alarm"): alert for alert in pager.round()}
    with database.transaction() as session:
        session.execute(update(Alarm).values(over_at=AT + 50))
        timeline.add(session, AT + 50, "alarm_over", None, JOB, {})
    over = [alert for alert in pager.round() if "endsAt" in alert]

    assert reported["inc-00000000000f"]["labels"]["severity"] == "critical"
    assert "job" not in reported["inc-00000000000f"]["labels"]
    assert reported[ID]["labels"]["explained_by"] == "inc-00000000000f"
    assert reported["alarm"]["labels"] == {
        "alertname": "FaulthoundAlarm", "kind": "coverage", "job": JOB, "severity": "warning"
    }  # fmt: skip
    assert reported["alarm"]["annotations"]["description"] == "3 of 8 ranks are seen."
    assert [alert["labels"] for alert in over] == [reported["alarm"]["labels"]]


def test_an_incident_that_is_gone_is_resolved(client: Client, pager: Pager) -> None:
    """An alert whose incident the service has no more is ended, too."""
    database = client.service.database
    seed(database, job=None)
    [before] = pager.round()
    with database.transaction() as session:
        session.delete(session.get(Incident, ID))

    [after] = pager.round()

    assert after == before | {"endsAt": rfc3339(pager.now)}


def test_foreign_words_stay_words(client: Client, pager: Pager) -> None:
    """Control characters, quotes and names without an end neither break the request nor steer a terminal."""
    seed(client.service.database, job='x"\\{}\n\x1b[31m', verdicts=(verdict(node="n" * 250),), kind="Ärger")

    [alert] = pager.round()

    assert alert["labels"]["job"] == 'x"\\{}\n\\x1b[31m'
    assert alert["labels"]["severity"] == "warning"


def test_many_culprits_fit_a_label() -> None:
    """The first three are named, and how many there are more."""
    assert culprit([{"kind": "node", "id": f"n{number}"} for number in range(5)]) == "node:n0,node:n1,node:n2,2 more"
    assert culprit([]) == ""


def test_a_sink_that_is_away_misses_no_end(
    client: Client, pager: Pager, sink: Receiver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An end that Alertmanager was not there to hear is reported when it is back, and the waiting is said once."""
    monkeypatch.setattr(alertmanager, "ATTEMPTS", 2)
    seed(client.service.database)
    pager.round()
    sink.answer = lambda _: (503, {})
    close(client.service.database, AT + 900)

    assert pager.round() == pager.round() == []
    sink.answer = lambda _: (200, {})
    [after] = pager.round()

    assert after["endsAt"] == rfc3339(AT + 900)
    assert capsys.readouterr().err.count("does not accept posts") == 1


@pytest.mark.system
def test_a_killed_process_resolves_what_it_fired(client: Client, sink: Receiver, tmp_path: Path) -> None:
    """The command itself: an alert soon after the opening, SIGKILL, the closing while it is away, and the end after."""
    with adapter("alertmanager", client.url, sink.url, tmp_path) as process:
        begun(tmp_path / "alertmanager.json")
        seed(client.service.database)
        began = time.monotonic()
        sink.until(bool)
        assert in_time(time.monotonic() - began, 3)
        time.sleep(0.5)  # it has stored what it has reported
        process.send_signal(signal.SIGKILL)
    close(client.service.database, AT + 900)
    with adapter("alertmanager", client.url, sink.url + "/", tmp_path):
        sink.until(lambda taken: "endsAt" in taken[-1][0])

    for request in sink.taken:
        check_alerts(request)
    assert set(sink.paths) == {"/api/v2/alerts"}


def test_alerts_are_told_again(client: Client, sink: Receiver, pager: Pager, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing happens the wait ends when it is time to tell again; when something happens it ends at once."""
    monkeypatch.setattr(alertmanager, "RESEND_SECONDS", 1.0)
    seed(client.service.database)
    pager.round()

    began = time.monotonic()
    pager._alerts.wait()

    assert time.monotonic() - began > 0.5
    assert in_time(time.monotonic() - began, 2.5)


def test_a_real_alertmanager_rings_and_stops(client: Client, sink: Receiver, tmp_path: Path) -> None:
    """Alertmanager takes the alerts; a crash that is over within its group_wait rings, and a closed hang is resolved."""
    with alertmanagers.alertmanager(tmp_path, sink.url) as url, adapter("alertmanager", client.url, url, tmp_path):
        begun(tmp_path / "alertmanager.json")
        at = now()
        seed(client.service.database, at=at - LEAST_SECONDS)
        seed(client.service.database, "inc-00000000000c", at=at, job="other", kind="crash", closed_at=at + 0.5)
        sink.until(lambda taken: len({reported["groupLabels"]["incident"] for reported in taken}) == 2)
        close(client.service.database, now())
        sink.until(lambda taken: any(reported["status"] == "resolved" for reported in taken))
        known = httpx.get(f"{url}/api/v2/alerts").json()

    rung = [reported for reported in sink.taken if reported["status"] == "firing"]
    [resolved] = [reported for reported in sink.taken if reported["status"] == "resolved"]
    assert {reported["groupLabels"]["incident"] for reported in rung} == {ID, "inc-00000000000c"}
    assert resolved["groupLabels"] == {"incident": ID}
    assert "it moves again at step 101" in resolved["commonAnnotations"]["description"]
    assert [alert["labels"]["incident"] for alert in known] == ["inc-00000000000c"]
