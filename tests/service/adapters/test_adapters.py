"""The adapters: a sink gets everything once or again under the same id, through kills, restarts, refusals and absences."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from service.adapters.following import AdapterState, StateFile
from service.client import UserError
from service.store import timeline
from tests.service.cli.test_incident_commands import database_of
from tests.support import command_line
from tests.support.bounds import in_time
from tests.support.incident_rows import AT, JOB, seed
from tests.support.served import Client, served, serving
from tests.support.sinks import Receiver, adapter, begun, check_cloud_event, happen, numbers, said

ID = "inc-0123456789ab"


@pytest.fixture
def client(emptied: Client) -> Client:
    """Return a client of a service that the tests share."""
    return emptied


def from_here(client: Client, folder: Path) -> int:
    """Let an adapter begin with what happens from now on, though it is not there yet; return the place."""
    place: int = client.get("/v1/now").json()["stream_after"]
    StateFile(folder / "cloudevents.json").save(AdapterState(after=place))
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
            reported = said(process)

    assert numbers(sink.taken) == list(range(10))
    assert (
        reported.count("does not answer") == reported.count("the service answers again") == 2
    )  # at first nobody was there


@pytest.mark.system
def test_a_sink_that_is_away_is_waited_for(client: Client, sink: Receiver, tmp_path: Path) -> None:
    """Overload, a lost password and errors are waited out, in order, and said once."""
    moods = iter([(503, {"Retry-After": "1"}), (401, {}), (500, {"Retry-After": "soon"})])
    sink.answer = lambda _: next(moods, (202, {}))
    from_here(client, tmp_path)
    happen(client.service.database, 1, 2)
    with adapter("cloudevents", client.url, sink.url, tmp_path) as process:
        sink.until(lambda taken: len(taken) == 2)
        reported = said(process)

    assert numbers(sink.refused) == [1, 1, 1]
    assert numbers(sink.taken) == [1, 2]
    assert reported.count("does not accept posts (503 the sink's own words); trying again") == 1
    assert reported.count("accepts posts again") == 1


@pytest.mark.system
def test_what_a_sink_refuses_is_passed_over(client: Client, sink: Receiver, tmp_path: Path) -> None:
    """What is refused for good is not sent again and holds nobody up; it is said once for a row of refusals."""
    sink.answer = lambda event: (422, {}) if event["data"]["details"]["number"] in (1, 2, 4) else (200, {})
    from_here(client, tmp_path)
    happen(client.service.database, *range(6))
    with adapter("cloudevents", client.url, sink.url, tmp_path) as process:
        sink.until(lambda taken: len(taken) == 3)
        reported = said(process)

    assert numbers(sink.taken) == [0, 3, 5]
    assert numbers(sink.refused) == [1, 2, 4]
    assert reported.count("422 the sink's own words") == 2


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
    file.save(AdapterState(after=1))

    def crash(*_: object) -> None:
        raise OSError("the power fails")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(UserError):
        file.save(AdapterState(after=2))
    monkeypatch.undo()

    assert file.load() == AdapterState(after=1)


@pytest.mark.parametrize("url", ["events.example", "ftp://x", "http://", "http://[::1"])
def test_an_address_that_is_none_is_refused(url: str, tmp_path: Path) -> None:
    """Both adapters say what an address looks like, of the sink and of the service."""
    for kind, to in (("cloudevents", url), ("alertmanager", url), ("cloudevents", "http://127.0.0.1:9")):
        done = command_line.faulthound("adapter", kind, "--to", to, "--public", url, "--state", tmp_path / "s.json")
        assert (done.returncode, "is no address" in done.stderr) == (2, True)
