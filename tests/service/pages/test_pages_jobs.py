"""The page of a job: its steps as numbers and as a line, its incidents and places, and names that are hostile or have slashes."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from analyzers.incidents.state import EngineState
from collectors.records import Members, Placement
from service.clock import now
from service.engine import learned
from service.packaged_knowledge import load
from service.store.models import Job, Progress
from tests.support import incident_rows
from tests.support.served import Client, served
from tests.support.watched_jobs import START, WatchedJob, step_record, watched

HOSTILE = "team/a <script>1</script>"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a service that sees two jobs, one with steps and an incident."""
    with served(tmp_path_factory.mktemp("jobs"), engine=False) as client:
        at = now()
        for number, (name, rows) in enumerate(
            ((HOSTILE, []), ("run", []), ("llama", [(step, at - 30 + step) for step in range(1, 29)]))
        ):
            placed = Placement(
                job=name, attempt=0, node="n0", ranks=Members.of(range(3)), nodes=("n0",) * 3, world_size=4
            )
            client.ship("n0", [placed, *([step_record(rows, job=name)] if rows else [])], f"b{number}")
        incident_rows.seed(client.service.database, job="llama")
        state = EngineState(load())
        # It saves every 500 steps.
        state.jobs["run", 0] = watched(WatchedJob(law=lambda step, _: 61.0 if step % 500 == 0 else 1.0), 2_400.0)
        with client.service.database.transaction() as session:
            learned.write(session, learned.Learned().due(state, START + 2_400.0))
        client.eventually("/v1/jobs/llama", lambda document: document["steps"])
        yield client


def test_jobs_are_listed_with_state_steps_and_incident(client: Client) -> None:
    """By name, one that is seen no more included; each leads to its page, and the front page to the list."""
    with client.service.database.transaction() as session:
        session.add(Job(name="finished", first_seen_at=START, last_seen_at=START, version=0))
        session.add(Job(name="over", first_seen_at=START, last_seen_at=now(), version=0))
        session.add(Progress(job="over", attempt=0, at=now(), document={"ended_at": now()}))
    shown = client.get("/jobs").text
    rows = {row.partition("</a>")[0].rpartition(">")[2]: row for row in shown.split("<tr><td>")[1:]}

    assert sorted(rows) == ["finished", "llama", "over", "run", "team/a &lt;script&gt;1&lt;/script&gt;"]
    assert {one["name"]: one["state"] for one in client.get("/v1/jobs").json()["items"]} == {
        "finished": "not_seen", "over": "ended", "run": "running", "llama": "in_trouble", HOSTILE: "running",
    }  # fmt: skip
    assert ">ended</span>" in rows["over"]
    assert ">not seen</span>" in rows["finished"]
    assert ">running</span>" in rows["run"]
    assert [
        word
        for word in (">in trouble</span>", ">28</td>", ">1 s</td>", "inc-0123456789ab")
        if word not in rows["llama"]
    ] == []
    assert 'href="/jobs/llama"' in rows["llama"]
    assert 'href="/v1/jobs" rel="alternate"' in shown
    assert client.get("/").text.count('<a href="/jobs">') == 2


def test_steps_are_numbers_and_a_line(client: Client) -> None:
    """The newest step, how long one takes, and as many points as there were reports; JSON has the same."""
    shown = client.get("/jobs/llama").text
    steps = client.get("/v1/jobs/llama").json()["steps"]

    assert "<dd>28</dd>" in shown
    assert "<dd>1 s</dd>" in shown
    assert shown.partition('<polyline points="')[2].partition('"')[0].count(",") == 27
    assert (steps["step"], steps["median_seconds"], len(steps["recent_seconds"])) == (28, pytest.approx(1.0), 27)
    assert "inc-0123456789ab" in shown
    assert "<td>0-2</td>" in shown
    assert '<body class="busy">' in shown


def test_a_job_without_steps_says_so_and_is_no_part_of_the_page(client: Client) -> None:
    """No line and no number where nothing was reported; its name, with a slash and markup, stays text and its links work."""
    shown = client.get(f"/jobs/{quote(HOSTILE)}").text

    assert "No step was reported lately" in shown
    assert "<polyline" not in shown
    assert "<script" not in shown
    assert '<body class="calm">' in shown
    twin = shown.partition('<a href="/v1/jobs/')[2].partition('"')[0]
    assert client.get(f"/v1/jobs/{twin}").json()["name"] == HOSTILE
    link = client.get("/").text.partition('<a href="/jobs/team/')[2].partition('"')[0]
    assert client.get(f"/jobs/team/{link}").status_code == 200


def test_the_engines_view_is_shown(client: Client) -> None:
    """What is allowed now, the habit, the pauses whether they were learned, and the witnesses; nothing of a job without it."""
    shown, without = client.get("/jobs/run").text, client.get("/jobs/llama").text

    assert "s are allowed now" in shown
    assert "It pauses for 61 s every 500 steps." in shown
    assert shown.count("<td>yes</td>") >= 3
    assert "<td>steps</td>" in shown
    assert "<td>context switches</td>" in shown
    assert "unmeasured" in shown
    assert "Rhythm and witnesses" not in without


def test_agents_of_a_job_that_has_ended_are_not_to_be_asked(client: Client) -> None:
    """It has no processes whose stacks could be taken."""
    placed = Placement(job="done", attempt=0, node="n0", ranks=Members.of(range(8)), nodes=("n0",) * 8, world_size=8)
    client.ship("n0", [placed], "ended")
    client.eventually("/v1/jobs", lambda document: any(one["name"] == "done" for one in document["items"]))
    state = EngineState(load())
    state.jobs["done", 0] = watched(
        WatchedJob(ended=dict.fromkeys(range(8), (100.0, 0, None)), stopped_at=100.0), 130.0
    )
    with client.service.database.transaction() as session:
        learned.write(session, learned.Learned().due(state, START + 130.0))

    shown = client.get("/jobs/done").text
    assert ("Its processes have ended" in shown, "jobs collect" in shown) == (True, False)
    assert "jobs collect llama" in client.get("/jobs/llama").text


def test_a_job_of_which_only_incidents_are_left_has_a_page(client: Client) -> None:
    """Retention deletes jobs before incidents: their links still lead somewhere. One that was never seen is unknown."""
    incident_rows.seed(client.service.database, "inc-00000000000f", job="gone")

    assert "inc-00000000000f" in client.get("/jobs/gone").text
    assert client.get("/jobs/never").status_code == 404


def test_roles_are_listed_with_what_they_do(client: Client) -> None:
    """By number, with phase, wait, weights and epoch; hostile words stay text."""
    for instance in ("10", "2"):
        asked = {"role": "rollout", "instance": instance, "process": instance, "weights": 7, "phase": "<i>tool</i>"}
        renewal = {"epoch": client.put("/v1/jobs/llama/roles", json=asked).json()["role"]["epoch"]}
        does = {"phase_seconds": 120, "waiting_for": "tool", "waiting_seconds": 90}
        assert client.put("/v1/jobs/llama/roles", json={**asked, **renewal, "activity": does}).status_code == 200
    shown = client.get("/jobs/llama").text.partition('id="roles-title"')[2].partition("</section>")[0]

    assert shown.index("<td>2</td>") < shown.index("<td>10</td>")
    assert "&lt;i&gt;tool&lt;/i&gt; for 2 min" in shown
    assert "<td>tool for 90 s</td>" in shown
    assert 'id="roles-title"' not in client.get("/jobs/run").text
