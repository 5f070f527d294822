"""`faulthound incidents` and `watch`: what they print of a real service's incidents, and how they end."""

from __future__ import annotations

import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from rich.console import Console

from collectors.records import block
from service.cli.incidents import INCIDENT_COLUMNS
from service.cli.output import rich_table
from service.cli.speech import Speech
from service.cli.watch import follow, line_of
from service.client import Connection, StreamEvent, connected
from service.reports import history
from service.reports.timeline_entries import entry_text
from service.store import timeline
from service.store.database import Database
from service.store.models import Incident, Verdict
from tests.support import command_line, incident_rows
from tests.support import recorded_incident as recorded
from tests.support.command_line import Done
from tests.support.incident_rows import AT, JOB
from tests.support.sample_verdicts import healthy, undecided
from tests.support.served import BLOCK_TYPE, serving

REPOSITORY = Path(__file__).resolve().parents[3]
ID, CLOSED, OPEN, PAST = "inc-0123456789ab", "inc-00000000000c", "inc-00000000000e", "inc-00000000000f"
SECONDS = 20.0
NO_ENGINE = {"FAULTHOUND_ENGINE": "false"}  # the rows are made here, and a process less is a second less
# Also where the tests themselves were started in the background, and so ignore SIGINT.
HEARS_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
COMMAND = [sys.executable, "-c", f"{HEARS_CTRL_C}; from service.cli import main; main()"]


def faulthound(url: str, *arguments: str) -> Done:
    """Run a command against this service."""
    return command_line.faulthound(*arguments, "--service", url)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Database]]:
    """Return a service with an open incident of two versions and a closed one of another job, and its database."""
    folder = tmp_path_factory.mktemp("service")
    with serving(folder, NO_ENGINE) as (url, _process), database_of(folder) as database:
        incident_rows.seed(database, verdicts=(undecided(), incident_rows.verdict()))
        incident_rows.seed(database, CLOSED, at=AT - 500, job="mixtral", closed_at=AT - 400, verdicts=())
        yield url, database


@pytest.fixture
def url(served: tuple[str, Database]) -> str:
    """Return the service's address."""
    return served[0]


@pytest.fixture
def database(served: tuple[str, Database]) -> Database:
    """Return the service's database."""
    return served[1]


def test_incidents_are_listed(url: str) -> None:
    """A table for people with who is named, and the service's own rows for programs; the filters are the service's."""
    table = faulthound(url, "incidents", "list").stdout.splitlines()
    rows = json.loads(faulthound(url, "incidents", "list", "--status", "open", "--json").stdout)

    assert [line.split()[0] for line in table[1:]] == [ID, CLOSED]
    assert "node gpu-0002 (rank 3)" in table[1]
    assert "no verdict" in table[2]
    assert "no verdict yet" not in table[2]
    assert [row["id"] for row in rows] == [ID]
    assert faulthound(url, "incidents", "list", "--job", "nobody's", "--json").stdout.strip() == "[]"


def test_an_incident_is_shown(url: str) -> None:
    """Why it opened, a line a version with what changed, and the newest verdict as `diagnose` prints it."""
    shown = faulthound(url, "incidents", "show", ID).stdout
    first = faulthound(url, "incidents", "show", ID, "--version", "1").stdout
    reported = json.loads(faulthound(url, "incidents", "show", ID, "--json").stdout)

    assert shown.startswith(f"{ID}: hang of {JOB}, attempt 1, opened 2026-11-21 03:14:07 UTC\n")
    assert "no_progress: no step for 12.0 s; 8.0 s are its rhythm" in shown
    assert "cause unknown → machine, culprit none → node gpu-0002 (rank 3), action none → evict" in shown
    assert "Evict node gpu-0002. It hangs alone." in shown
    assert "Nothing is named. The job shows a hang" in first
    assert [one["version"] for one in reported["versions"]] == [1, 2]
    assert reported["verdict"] == httpx.get(f"{url}/v1/incidents/{ID}/verdict").json()


def test_what_is_not_there_is_said(url: str) -> None:
    """An incident that nobody knows is refused by the service, one without a verdict says so, and both say what to do."""
    unknown = faulthound(url, "incidents", "show", "inc-ffffffffffff")
    silent = faulthound(url, "incidents", "show", CLOSED)
    early = faulthound(url, "incidents", "show", CLOSED, "--version", "3")

    assert (unknown.returncode, "is unknown" in unknown.stderr) == (5, True)
    assert (silent.returncode, "It was closed without a verdict." in silent.stdout) == (0, True)
    assert "closed: it moves again at step 101" in silent.stdout
    assert (early.returncode, "nothing was published yet" in early.stderr) == (2, True)


def test_an_incident_is_closed_by_hand(url: str, database: Database) -> None:
    """With a reason it is closed, in the audit log and the timeline too; without one, twice, or unknown: refused."""
    incident_rows.seed(database, OPEN, at=AT - 50, verdicts=())

    nameless = faulthound(url, "incidents", "close", OPEN)
    done = faulthound(url, "incidents", "close", OPEN, "--reason", "the node was replaced", "--json")
    again = faulthound(url, "incidents", "close", OPEN, "--reason", "x")
    unknown = faulthound(url, "incidents", "close", "inc-none", "--reason", "x")

    assert (nameless.returncode, "--reason" in nameless.stderr) == (2, True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["status"], "the node was replaced" in found["closed_because"]) == ("closed", True)
    assert (again.returncode, "was closed before" in again.stderr) == (5, True)
    assert (unknown.returncode, "is unknown" in unknown.stderr) == (5, True)
    entries = httpx.get(f"{url}/v1/incidents/{OPEN}/timeline").json()["items"]
    assert entries[-1]["kind"] == "closed"
    audit = httpx.get(f"{url}/v1/events", params={"limit": 5}).json()["items"]
    assert [one["details"] for one in audit if one["kind"] == "incident_closed"] == [
        {"reason": "the node was replaced"}
    ]


def test_feedback_is_given(url: str) -> None:
    """A person's word arrives with the real culprit, shows in the incident, and nonsense never leaves the machine."""
    given = faulthound(
        url, "incidents", "feedback", ID, "wrong", "--culprit", "node:gpu-0007", "--text", "its HBM", "--json"
    )
    nonsense = faulthound(url, "incidents", "feedback", ID, "wrong", "--culprit", "gpu-0007")

    assert json.loads(given.stdout)["culprit"] == {"kind": "node", "id": "gpu-0007"}
    assert ": wrong, it was node gpu-0007: its HBM" in faulthound(url, "incidents", "show", ID).stdout
    again = faulthound(url, "incidents", "feedback", ID, "unclear").stderr
    assert "the earlier feedback (wrong of version 2, by" in " ".join(again.split())
    assert (nonsense.returncode, "node:gpu-0413 or rank:14" in nonsense.stderr) == (2, True)
    assert faulthound(url, "incidents", "feedback", ID, "maybe").returncode == 2
    itself = faulthound(url, "incidents", "feedback", ID, "wrong", "--culprit", "rank:3")
    assert (itself.returncode, "is what version 2 of the verdict names" in " ".join(itself.stderr.split())) == (5, True)


def test_the_advice_of_a_closed_incident_is_of_the_past(url: str, database: Database) -> None:
    """What was to be done while it was open is no order any more, in a list and in full."""
    incident_rows.seed(
        database, PAST, at=AT - 900, job="ended", closed_at=AT - 800, verdicts=(incident_rows.verdict(),)
    )
    shown = " ".join(faulthound(url, "incidents", "show", PAST).stdout.split())
    listed = faulthound(url, "incidents", "list", "--job", "ended").stdout

    assert "What to do" not in shown
    assert (
        "What was advised The incident is closed, and what follows was advised while it was open. It moves again"
        in shown
    )
    assert "advised: evict" in listed


@pytest.mark.system
def test_an_exported_incident_is_replayed(url: str, database: Database, tmp_path: Path) -> None:
    """`incidents export` and `replay` close the circle: a real service's bundle is judged to the bytes that it holds."""
    first = 0
    for sequence, (_received_at, node, records) in recorded.records().items():
        headers = {"Content-Type": BLOCK_TYPE, "Faulthound-Node": node, "Faulthound-Batch": f"r{sequence}"}
        answer = httpx.post(f"{url}/v1/records", content=block.encode(records, pack=True), headers=headers).json()
        first = first or answer["sequence"]
    seed_recorded(database, first)
    file = tmp_path / "incident.fhz"

    done = faulthound(url, "incidents", "export", recorded.ID, str(file))
    again = faulthound(url, "incidents", "export", recorded.ID, str(file))
    replayed = subprocess.run(
        [*COMMAND, "replay", str(file), "--json"], cwd=REPOSITORY, capture_output=True, timeout=60
    )

    assert (done.returncode, done.stdout) == (0, "")
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    assert replayed.returncode == 0, replayed.stderr
    assert [one["same"] for one in json.loads(replayed.stdout)["versions"]] == [True, True]


def seed_recorded(database: Database, first: int) -> None:
    """Store the recorded incident with its verdicts' cuts moved to where its batches stand in this log."""
    moved = first - min(recorded.records())
    incident_rows.seed(
        database, recorded.ID, at=recorded.AT, job=recorded.JOB, nodes=recorded.NODES, verdicts=(),
        context=block.encode(recorded.CONTEXT, pack=True), after=first - 1,
    )  # fmt: skip
    with database.transaction() as session:
        for one, cut in zip(recorded.published(), recorded.CUTS, strict=True):
            placed = msgspec.structs.replace(cut, after=first - 1, through=cut.through + moved)
            session.add(
                Verdict(
                    incident=recorded.ID, version=one.version, at=one.at, cut=msgspec.to_builtins(placed),
                    knowledge=one.knowledge, program=one.program, document=one.document,
                )
            )  # fmt: skip
        row = session.get(Incident, recorded.ID)
        assert row is not None
        row.verdict_version, row.symptom, row.cause, row.action = 2, "hang", "machine", "evict"


def happened(database: Database, kind: str, **details: Any) -> None:
    """Let something happen with the open incident."""
    with database.transaction() as session:
        timeline.add(session, AT + 30, kind, ID, JOB, details)


def test_watch_prints_what_happens(url: str, database: Database) -> None:
    """A pipe gets a JSON object a line as things happen, those of the asked job only; Ctrl-C ends it with 130."""
    with subprocess.Popen(
        [*COMMAND, "watch", "--job", JOB, "--json"],
        cwd=REPOSITORY, env={"PATH": os.environ["PATH"], "FAULTHOUND_SERVICE": url}, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            line = first_line(process, database)
            process.send_signal(signal.SIGINT)
            code = process.wait(timeout=SECONDS)
        finally:
            process.kill()

    assert (line["kind"], line["incident"], line["job"]) == ("closed", ID, JOB)
    assert line["details"] == {"because": "it moves again at step 102"}
    assert code == 130


def first_line(process: subprocess.Popen[str], database: Database) -> dict[str, Any]:
    """Return the first that is printed: it begins with what comes, so let something come until somebody listens."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(process.stdout.readline()), daemon=True).start()  # type: ignore[union-attr]
    deadline = time.monotonic() + SECONDS
    while lines.empty() and time.monotonic() < deadline:
        with database.transaction() as session:
            timeline.add(session, AT, "opened", None, "mixtral", {})
        happened(database, "closed", because="it moves again at step 102")
        time.sleep(0.2)
    reported: dict[str, Any] = json.loads(lines.get(timeout=1))
    return reported


@pytest.mark.system
def test_watch_survives_a_restart(tmp_path: Path) -> None:
    """A service that is killed and comes back loses no event for who watches: those of the time between are reported, once."""
    seen: queue.Queue[Any] = queue.Queue()

    def look(url: str) -> None:
        with connected(url, None, None) as connection:
            for event in follow(connection, None, Speech(quiet=True)):
                seen.put(event)

    with serving(tmp_path, NO_ENGINE) as (url, process), database_of(tmp_path) as database:
        incident_rows.seed(database)
        threading.Thread(target=look, args=(url,), daemon=True).start()
        assert seen.get(timeout=SECONDS) is None
        until_heard(seen, lambda: happened(database, "symptom", text="first"))
        process.kill()
        process.wait()
        happened(database, "symptom", text="while it was away")
    with serving(tmp_path, {**NO_ENGINE, "FAULTHOUND_PORT": url.rpartition(":")[2]}):
        reported = [seen.get(timeout=SECONDS) for _ in range(2)]

    assert reported[0] is None
    assert reported[1].details == {"text": "while it was away"}
    assert seen.empty()


@contextmanager
def database_of(folder: Path) -> Iterator[Database]:
    """Give the database that a service in this folder uses."""
    database = Database(f"sqlite:///{folder / 'data' / 'faulthound.db'}")
    try:
        yield database
    finally:
        database.close()


def until_heard(seen: queue.Queue[Any], act: Callable[[], None]) -> None:
    """Let something happen, and wait until whoever listens has heard of it."""
    act()
    assert seen.get(timeout=SECONDS).kind == "symptom"


@pytest.mark.parametrize("reason", ["refused", "timed out"])
def test_watch_waits_for_a_service_that_is_not_up_yet(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that does not answer at first is waited for as in a restart, and that is said once."""
    said: list[str] = []
    monkeypatch.setattr(Speech, "note", lambda _self, text: said.append(text))
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    asked: list[float] = []

    def answers(request: httpx.Request) -> httpx.Response:
        asked.append(request.extensions["timeout"]["read"])
        if len(asked) < 3:
            raise httpx.ConnectError(reason)
        return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=b"")

    with httpx.Client(transport=httpx.MockTransport(answers), base_url="http://x", timeout=1.0) as client:
        assert next(follow(Connection("http://x", client), None, Speech())) is None

    assert len(said) == 2
    assert (reason in said[0], said[1]) == (True, "the service answers again")
    assert set(asked) == {30.0}  # a stream rests for longer than --timeout 1


def test_an_id_is_not_broken_over_two_lines() -> None:
    """In a terminal of 80 columns the other cells are folded, and the id can be copied."""
    row = (
        ID,
        "2026-11-21 03:14:07 UTC",
        "2026-11-21 03:24:07 UTC",
        "hang",
        "llama-405b",
        "node gpu-0002 (rank 3)",
        "97 %",
        "evict",
    )
    shown = io.StringIO()
    Console(file=shown, width=80).print(rich_table(INCIDENT_COLUMNS, [row]))

    assert ID in shown.getvalue()


def test_a_line_is_one_line() -> None:
    """Whatever stands in an event, it becomes one line that steers no terminal."""
    event = StreamEvent(sequence=1, at=AT, kind="closed", incident=ID, job="a\x1b[2Jb", details={"because": "x\ny"})

    assert line_of(event) == f"03:14:07  closed  {ID}  a\\x1b[2Jb  x y"
    assert line_of(StreamEvent(sequence=2, at=AT, kind="new_in_2027", details={"n": 3})) == "03:14:07  new_in_2027  n 3"


@pytest.mark.parametrize(
    ("kind", "details", "line"),
    [
        ("asked", {"verb": "recorders", "nodes": 3}, "3 nodes for flight-recorder dumps"),
        ("asked", {"verb": "read", "nodes": 1}, "1 node for the newest steps"),
        ("answered", {"look": 1, "waits_for": 0}, "evidence round 1"),
        ("answered", {"look": 2, "waits_for": 5}, "evidence round 2; 5 answers did not come in time"),
        (
            "published",
            {
                "version": 1,
                "symptom": "hang",
                "cause": "none",
                "culprits": [],
                "action": "none",
                "no_fault": "rank 0 is in a checkpoint: save (train.py)",
            },
            "version 1: no fault: rank 0 is in a checkpoint: save (train.py)",
        ),
        (
            "published", {"version": 1, "symptom": "numeric", "cause": "code", "culprits": ["code:code"], "action": "none"},
            "version 1: numeric, code, no action",
        ),
        (
            "published", {"version": 1, "symptom": "crash", "cause": "code", "culprits": ["code:rank 1"], "action": "rollback"},
            "version 1: crash, code, code of rank 1, rollback",
        ),
        ("judged", {"looks": 1, "through": 153, "unfinished": []}, "after 1 evidence round"),
        ("judged", {"looks": 2, "through": 153, "unfinished": ["hang"]}, "after 2 evidence rounds, without hang"),
    ],
)  # fmt: skip
def test_what_the_engine_did_is_a_sentence(kind: str, details: dict[str, Any], line: str) -> None:
    """Of what the engine asked, heard and judged, people read words and no field names; nothing is said of what is normal."""
    assert entry_text(kind, details) == line


@pytest.mark.system
def test_what_changed_is_said() -> None:
    """Between two versions every difference that a reader acts on is named, and no other."""
    first, second = history.of_verdict(undecided(), 1, AT), history.of_verdict(incident_rows.verdict(), 2, AT + 9)

    assert history.changed(None, first) == "first"
    assert history.changed(first, first) == "the evidence behind it"
    assert "culprit none → node gpu-0002 (rank 3)" in history.changed(first, second)
    assert history.changed(second, history.of_verdict(healthy(), 3, AT)).startswith("symptom hang → healthy")
    assert history.of_summary(history.as_json(second)) == second
