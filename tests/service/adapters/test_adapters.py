"""The adapters: a sink gets everything once or again under the same id, through kills, restarts, refusals and absences."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, update

from analyzers.incidents.messages import Publish
from analyzers.model.incident import Cut
from service.adapters import alertmanager
from service.adapters.alertmanager import LEAST_SECONDS, Alerts, culprit
from service.adapters.following import State, StateFile
from service.adapters.sink import Sink
from service.cli.speech import Speech
from service.client import Connection, UserError, connected
from service.clock import now
from service.reports.instants import rfc3339
from service.store import incidents, timeline
from service.store.database import Database
from service.store.models import Alarm, Incident
from tests.service.cli.test_incident_commands import database_of
from tests.support import alertmanagers, command_line
from tests.support.bounds import in_time
from tests.support.incident_rows import AT, JOB, seed, verdict
from tests.support.served import Client, served, serving
from tests.support.sinks import Receiver, adapter, check_alerts, check_cloud_event, receiving, said

ID = "inc-0123456789ab"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a service without an engine."""
    with served(tmp_path_factory.mktemp("service"), engine=False) as client:
        yield client


@pytest.fixture
def client(running: Client) -> Client:
    """Return a client of a service in which there is no incident and no alarm."""
    with running.service.database.transaction() as session:
        for model in (Incident, Alarm):
            session.execute(delete(model))
    happen(running.service.database, 0)  # the newest place is one that is there
    return running


@pytest.fixture
def sink() -> Iterator[Receiver]:
    """Return a sink."""
    with receiving() as receiver:
        yield receiver


def happen(database: Database, *numbers: int) -> None:
    """Have something happen for each number."""
    for number in numbers:
        with database.transaction() as session:
            timeline.add(session, AT, "alarm", None, JOB, {"number": number})


def numbers(events: list[Any]) -> list[int]:
    """Return the numbers of what has happened."""
    return [event["data"]["details"]["number"] for event in events]


def begun(state: Path) -> None:
    """Wait until an adapter knows where it is."""
    deadline = time.monotonic() + 60
    while not state.exists() or json.loads(state.read_text())["after"] is None:
        assert time.monotonic() < deadline, "the adapter did not begin"
        time.sleep(0.02)


def from_here(client: Client, folder: Path) -> int:
    """Let an adapter begin with what happens from now on, though it is not there yet; return the place."""
    place: int = client.get("/v1/now").json()["stream_after"]
    StateFile(folder / "cloudevents.json").save(State(after=place))
    return place


# --- CloudEvents


def test_everything_becomes_a_cloud_event(client: Client, sink: Receiver, tmp_path: Path) -> None:
    """Each happening comes once, in order and valid; what was published brings its own version of the verdict along."""
    place = from_here(client, tmp_path)
    seed(client.service.database, closed_at=AT + 60)
    happen(client.service.database, 7)
    with adapter("cloudevents", client.url, sink.url, tmp_path, "--public", "https://fh.example/"):
        events = sink.until(lambda taken: len(taken) == 5)

    for event in events:
        check_cloud_event(event)
    assert [event["id"] for event in events] == [str(place + number) for number in range(1, 6)]
    assert [event["type"].removeprefix("io.faulthound.") for event in events] == [
        "incident.opened", "incident.published", "incident.published", "incident.closed", "alarm",
    ]  # fmt: skip
    assert {event["source"] for event in events} == {"https://fh.example"}
    assert [event["subject"] for event in events] == [ID, ID, ID, ID, JOB]
    assert events[0]["time"] == "2026-11-21T03:14:07.000Z"
    assert events[3]["data"]["details"] == {"because": "it moves again at step 101"}
    for event in events[1:3]:
        asked = {"version": event["data"]["details"]["version"]}
        assert event["data"]["verdict"] == client.get(f"/v1/incidents/{ID}/verdict", params=asked).json()
    assert {headers["Content-Type"] for headers in sink.headers} == {"application/cloudevents+json; charset=utf-8"}


def test_a_new_adapter_begins_with_what_comes(client: Client, sink: Receiver, tmp_path: Path) -> None:
    """Without a state file nothing old is sent, and what comes is sent within two seconds."""
    happen(client.service.database, 1)
    with adapter("cloudevents", client.url, sink.url, tmp_path):
        begun(tmp_path / "cloudevents.json")
        happen(client.service.database, 2)
        began = time.monotonic()
        sink.until(bool)

    assert in_time(time.monotonic() - began, 2)
    assert numbers(sink.taken) == [2]


def test_no_letter_ends_an_event(client: Client, sink: Receiver, tmp_path: Path) -> None:
    """Line ends that are none in a stream of events, as U+2028, arrive as what they are."""
    odd = "a\u2028b\u2029c\u0085d\x0be"
    from_here(client, tmp_path)
    with client.service.database.transaction() as session:
        timeline.add(session, AT, "alarm", None, JOB, {"deep": [odd]})
    with adapter("cloudevents", client.url, sink.url, tmp_path):
        [event] = sink.until(bool)

    assert event["data"]["details"]["deep"] == [odd]


@pytest.mark.system
def test_a_killed_adapter_loses_nothing(client: Client, sink: Receiver, tmp_path: Path) -> None:
    """Killed four times while it posts, it sends all in order; what the sink took at that moment comes again, by its id."""
    stops, processes = [9, 20, 31, 42], []

    def answer(event: Any) -> tuple[int, dict[str, str]]:
        number = event["data"]["details"]["number"]
        if number not in stops:
            return 200, {}
        stops.remove(number)
        processes[-1].send_signal(signal.SIGKILL)
        processes[-1].wait(timeout=20)
        return (200 if number % 2 == 0 else 503), {}  # taken, or not

    sink.answer = answer
    from_here(client, tmp_path)
    happen(client.service.database, *range(60))
    for _ in range(5):
        with adapter("cloudevents", client.url, sink.url, tmp_path) as process:
            processes.append(process)
            sink.until(lambda taken: process.poll() is not None or (bool(taken) and numbers(taken)[-1] == 59))

    assert numbers(sink.taken) == [*range(21), *range(20, 43), *range(42, 60)]
    assert len({event["id"] for event in sink.taken}) == 60


@pytest.mark.system
def test_a_killed_service_loses_nothing(sink: Receiver, tmp_path: Path) -> None:
    """While the service is killed and comes again the adapter waits, says so once, and goes on where it was."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    own = {"FAULTHOUND_PORT": port, "FAULTHOUND_ENGINE": "false"}
    with adapter("cloudevents", f"http://127.0.0.1:{port}", sink.url, tmp_path) as process:
        with serving(tmp_path, own) as (_, service), database_of(tmp_path) as database:
            begun(tmp_path / "cloudevents.json")
            happen(database, *range(5))
            sink.until(lambda taken: len(taken) == 5)
            service.kill()
            happen(database, *range(5, 10))
        with serving(tmp_path, own):
            sink.until(lambda taken: len(taken) == 10)
            told = said(process)

    assert numbers(sink.taken) == list(range(10))
    assert told.count("does not answer") == told.count("the service answers again") == 2  # at first nobody was there


@pytest.mark.system
def test_a_sink_that_is_away_is_waited_for(client: Client, sink: Receiver, tmp_path: Path) -> None:
    """Overload, a lost password and errors are waited out, in order, and said once."""
    moods = iter([(503, {"Retry-After": "1"}), (401, {}), (500, {"Retry-After": "soon"})])
    sink.answer = lambda _: next(moods, (202, {}))
    from_here(client, tmp_path)
    happen(client.service.database, 1, 2)
    with adapter("cloudevents", client.url, sink.url, tmp_path) as process:
        sink.until(lambda taken: len(taken) == 2)
        told = said(process)

    assert numbers(sink.refused) == [1, 1, 1]
    assert numbers(sink.taken) == [1, 2]
    assert told.count("does not accept posts (503 the sink's own words); trying again") == 1
    assert told.count("accepts posts again") == 1


@pytest.mark.system
def test_what_a_sink_refuses_is_passed_over(client: Client, sink: Receiver, tmp_path: Path) -> None:
    """What is refused for good is not sent again and holds nobody up; it is said once for a row of refusals."""
    sink.answer = lambda event: (422, {}) if event["data"]["details"]["number"] in (1, 2, 4) else (200, {})
    from_here(client, tmp_path)
    happen(client.service.database, *range(6))
    with adapter("cloudevents", client.url, sink.url, tmp_path) as process:
        sink.until(lambda taken: len(taken) == 3)
        told = said(process)

    assert numbers(sink.taken) == [0, 3, 5]
    assert numbers(sink.refused) == [1, 2, 4]
    assert told.count("422 the sink's own words") == 2


def test_a_sink_that_comes_later(client: Client, tmp_path: Path) -> None:
    """An address where nobody listens yet is tried until somebody does, and its password is not said."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    from_here(client, tmp_path)
    happen(client.service.database, 1)
    with adapter(
        "cloudevents", client.url, f"http://me:hidden@127.0.0.1:{port}/hidden?key=hidden", tmp_path
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()

    assert f"http://127.0.0.1:{port} does not accept posts" in line
    assert "hidden" not in line


@pytest.mark.system
def test_the_tokens_go_where_they_belong(sink: Receiver, tmp_path: Path) -> None:
    """A token that reads is enough for the service, the sink gets its own, and one that may not read ends the adapter."""
    (tmp_path / "sink").write_text("s3cret\n")
    own = ("--sink-token-file", str(tmp_path / "sink"), "--token-file")
    with served(tmp_path, engine=False) as client:
        made = client
        for scope in ("admin", "read", "ingest"):
            answer = made.post("/v1/tokens", json={"name": scope, "scopes": [scope]}).json()
            (tmp_path / scope).write_text(answer["token"])
            made = client.as_(answer["token"]) if scope == "admin" else made
        from_here(made, tmp_path)
        happen(client.service.database, 1)
        with adapter("cloudevents", client.url, sink.url, tmp_path, *own, str(tmp_path / "read")):
            sink.until(bool)
        with adapter("cloudevents", client.url, sink.url, tmp_path, *own, str(tmp_path / "ingest")) as process:
            assert process.wait(timeout=20) == 5

    assert sink.headers[0]["Authorization"] == "Bearer s3cret"


# --- Alertmanager


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
        """Return what is told now."""
        before = len(self.sink.taken)
        self._alerts._read(0, until_changed=False)
        self._alerts.post()
        told = self.sink.taken[before:]
        assert len(told) <= 1
        for request in told:
            check_alerts(request)
        return told[0] if told else []


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
    assert pager.round() == [alert]  # told again as long as it goes on


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

    told = {alert["labels"].get("incident", "alarm"): alert for alert in pager.round()}
    with database.transaction() as session:
        session.execute(update(Alarm).values(over_at=AT + 50))
        timeline.add(session, AT + 50, "alarm_over", None, JOB, {})
    over = [alert for alert in pager.round() if "endsAt" in alert]

    assert told["inc-00000000000f"]["labels"]["severity"] == "critical"
    assert "job" not in told["inc-00000000000f"]["labels"]
    assert told[ID]["labels"]["explained_by"] == "inc-00000000000f"
    assert told["alarm"]["labels"] == {
        "alertname": "FaulthoundAlarm", "kind": "coverage", "job": JOB, "severity": "warning"
    }  # fmt: skip
    assert told["alarm"]["annotations"]["description"] == "3 of 8 ranks are seen."
    assert [alert["labels"] for alert in over] == [told["alarm"]["labels"]]


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
    """An end that Alertmanager was not there to hear is told when it is back, and the waiting is said once."""
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
        time.sleep(0.5)  # it has stored what it has told
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
        sink.until(lambda taken: len({told["groupLabels"]["incident"] for told in taken}) == 2)
        close(client.service.database, now())
        sink.until(lambda taken: any(told["status"] == "resolved" for told in taken))
        known = httpx.get(f"{url}/api/v2/alerts").json()

    rung = [told for told in sink.taken if told["status"] == "firing"]
    [resolved] = [told for told in sink.taken if told["status"] == "resolved"]
    assert {told["groupLabels"]["incident"] for told in rung} == {ID, "inc-00000000000c"}
    assert resolved["groupLabels"] == {"incident": ID}
    assert "it moves again at step 101" in resolved["commonAnnotations"]["description"]
    assert [alert["labels"]["incident"] for alert in known] == ["inc-00000000000c"]


# --- the state


def test_a_damaged_state_file_is_told(tmp_path: Path) -> None:
    """What cannot be read or written ends the command with 2 and says what to do."""
    (tmp_path / "cut.json").write_text('{"after": 12, "fir')
    (tmp_path / "folder.json").mkdir()
    for name, words in (("cut.json", "remove it"), ("folder.json", "remove it"), ("absent/state.json", "--state")):
        done = command_line.faulthound(
            "adapter", "cloudevents", "--to", "http://127.0.0.1:9", "--state", tmp_path / name
        )
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_the_state_is_whole_after_any_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash right before the new state takes its place leaves the old one."""
    file = StateFile(tmp_path / "state.json")
    file.save(State(after=1))

    def crash(*_: object) -> None:
        raise OSError("the power fails")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(UserError):
        file.save(State(after=2))
    monkeypatch.undo()

    assert file.load() == State(after=1)


@pytest.mark.parametrize("url", ["events.example", "ftp://x", "http://", "http://[::1"])
def test_an_address_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    """Both adapters say what an address looks like, of the sink and of the service."""
    for kind, to in (("cloudevents", url), ("alertmanager", url), ("cloudevents", "http://127.0.0.1:9")):
        done = command_line.faulthound("adapter", kind, "--to", to, "--public", url, "--state", tmp_path / "s.json")
        assert (done.returncode, "is no address" in done.stderr) == (2, True)
