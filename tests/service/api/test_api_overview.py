"""Everything at a glance, alarms, and what incidents cost a job."""

from __future__ import annotations

import time

import pytest

from analyzers.remediation.role_restart import RoleRestart
from analyzers.remediation.types import Remediation
from service.remediation import rows
from service.store.models import Alarm, Attempt, Cursor, Downtime, Job, Progress
from tests.support.incident_rows import JOB, seed
from tests.support.served import Client, an_event


def trained(client: Client, *attempts: tuple[float, float], name: str = JOB) -> None:
    """Store a job with these attempts."""
    with client.service.database.transaction() as session:
        session.add(Job(name=name, first_seen_at=attempts[0][0], last_seen_at=attempts[-1][1], declared={}, version=1))
        session.flush()
        for number, (first, last) in enumerate(attempts):
            session.add(Attempt(job=name, number=number, first_seen_at=first, last_seen_at=last, world_size=4))


def went(client: Client, at: float, step: int | None, ended_at: float | None = None, attempt: int = -1) -> None:
    """Store what the engine knows of an attempt's progress."""
    document = {"progress": {"step": step}} | ({} if ended_at is None else {"ended_at": ended_at})
    with client.service.database.transaction() as session:
        session.add(Progress(job=JOB, attempt=attempt, at=at, document=document))


def cost(client: Client, incident: str, **values: float | None) -> None:
    """Change an incident's row of the ledger."""
    with client.service.database.transaction() as session:
        row = session.get(Downtime, incident)
        assert row is not None
        for name, value in values.items():
            setattr(row, name, value)


def test_a_jobs_ledger_adds_up(client: Client) -> None:
    """Two hours with an incident that was overcome and one that goes on: both ratios, and each incident's instants."""
    at = time.time()
    trained(client, (at - 7_200, at - 5_000), (at - 4_400, at))
    seed(client.service.database, "inc-a", at=at - 5_000, closed_at=at - 4_390)
    cost(client, "inc-a", onset_at=at - 5_000, first_good_at=at - 4_300, resumed_step=51, steps_lost=50)
    seed(client.service.database, "inc-b", at=at - 350)
    cost(client, "inc-b", onset_at=at - 360)

    ledger = client.get(f"/v1/jobs/{JOB}/downtime").json()

    assert [(one["incident"], one["steps_lost"]) for one in ledger["items"]] == [("inc-b", None), ("inc-a", 50)]
    assert ledger["wall_seconds"] == pytest.approx(7_200, abs=5)
    assert ledger["training_seconds"] == pytest.approx(7_200 - 700 - 360, abs=5)
    assert ledger["ettr"]["cumulative"] == pytest.approx(1 - 1_060 / 7_200, abs=0.005)
    assert ledger["ettr"]["sliding_hour"] == pytest.approx(0.9, abs=0.005)


@pytest.mark.parametrize(("stood", "lost"), [(None, 700), (200, 500), (700, 0)])
def test_steps_that_went_on_without_a_role_are_training(client: Client, stood: float | None, lost: float) -> None:
    """A rollout was lost 700 s before the first good step after its verdict: only the time without steps is lost."""
    at = time.time()
    trained(client, (at - 7_200, at))
    seed(client.service.database, "inc-a", at=at - 5_000, closed_at=at - 4_290)
    stood_at = None if stood is None else at - 5_000 + stood
    cost(client, "inc-a", onset_at=at - 5_000, stood_at=stood_at, first_good_at=at - 4_300)

    ledger = client.get(f"/v1/jobs/{JOB}/downtime").json()

    assert ledger["training_seconds"] == pytest.approx(7_200 - lost, abs=5)


def test_a_job_has_no_ratio_before_its_first_step(client: Client) -> None:
    """It starts, and whether it will train nobody knows: unmeasured, and not the whole of its time."""
    at = time.time()
    trained(client, (at - 100, at))
    went(client, at - 5, None)

    assert client.get(f"/v1/jobs/{JOB}/downtime").json()["ettr"] == dict.fromkeys(
        ("cumulative", "sliding_hour", "cumulative_partial", "sliding_hour_partial")
    )


def test_a_job_that_has_ended_trains_no_more(client: Client) -> None:
    """Its attempt was seen a moment ago, and all its processes have ended: what it trained does not grow with time."""
    at = time.time()
    trained(client, (at - 1_000, at - 20))
    went(client, at - 10, 88, ended_at=at - 150)
    seed(client.service.database, "inc-a", at=at - 195, closed_at=at - 140)
    cost(client, "inc-a", onset_at=at - 200)
    first = client.get(f"/v1/jobs/{JOB}/downtime").json()
    time.sleep(0.05)
    later = client.get(f"/v1/jobs/{JOB}/downtime").json()

    assert first["training_seconds"] == later["training_seconds"] == pytest.approx(800, abs=1)
    assert first["ettr"]["cumulative"] == later["ettr"]["cumulative"] == pytest.approx(800 / 860, abs=0.005)


def test_an_attempt_that_runs_again_is_not_over(client: Client) -> None:
    """It was seen after the engine last saw that it had ended: another run of the same attempt."""
    at = time.time()
    trained(client, (at - 1_000, at))
    went(client, at - 400, 88, ended_at=at - 450)

    assert client.get(f"/v1/jobs/{JOB}/downtime").json()["training_seconds"] == pytest.approx(1_000, abs=2)


def test_a_short_run_has_trained_until_it_stopped(client: Client) -> None:
    """An attempt that was seen at its beginning alone, because it ended within a minute, ran until its incident's first sign."""
    at = time.time()
    trained(client, (at - 1_000, at - 1_000))
    seed(client.service.database, "inc-a", at=at - 930, closed_at=at - 900)
    cost(client, "inc-a", onset_at=at - 940)

    ledger = client.get(f"/v1/jobs/{JOB}/downtime").json()

    assert ledger["training_seconds"] == pytest.approx(60, abs=1)
    assert ledger["ettr"]["cumulative"] == pytest.approx(0.6, abs=0.01)


def test_an_incident_between_two_attempts_is_the_first_ones(client: Client) -> None:
    """What stopped the first run shows how long that ran; the second is not counted before it began."""
    at = time.time()
    trained(client, (at - 1_000, at - 1_000), (at - 800, at - 700))
    seed(client.service.database, "inc-a", at=at - 930, closed_at=at - 790)
    cost(client, "inc-a", onset_at=at - 940, first_good_at=at - 790)

    assert client.get(f"/v1/jobs/{JOB}/downtime").json()["training_seconds"] == pytest.approx(60 + 90, abs=1)


def test_a_ledgers_pages_lose_nothing(client: Client) -> None:
    """Costs come a page at a time, and the sums are those of all of them on each page."""
    at = time.time()
    trained(client, (at - 1_000, at))
    for number in range(5):
        seed(client.service.database, f"inc-{number}", at=at - 500 + 10 * number)
    seen, cursor, sums = [], None, set()
    while True:
        asked = {"limit": 2, **({"after": cursor} if cursor else {})}
        page = client.get(f"/v1/jobs/{JOB}/downtime", params=asked).json()
        seen += [one["incident"] for one in page["items"]]
        sums.add(round(page["training_seconds"] / 50))
        if (cursor := page["next"]) is None:
            break

    assert seen == ["inc-4", "inc-3", "inc-2", "inc-1", "inc-0"]
    assert len(sums) == 1


def test_a_job_that_has_ended_grows_no_older(client: Client) -> None:
    """A job that was closed without another step has its time to its end, and none in the last hour."""
    at = time.time()
    trained(client, (at - 20_000, at - 10_000), name="ns/job")
    seed(client.service.database, at=at - 10_500, job="ns/job", closed_at=at - 10_000)
    cost(client, "inc-0123456789ab", onset_at=at - 11_000)

    ledger = client.get("/v1/jobs/ns/job/downtime").json()

    ratios = {"cumulative": pytest.approx(0.9), "sliding_hour": None}
    assert ledger["ettr"] == {**ratios, **{f"{name}_partial": ratio for name, ratio in ratios.items()}}
    assert client.get("/v1/jobs/none/downtime").status_code == 404


def test_rollouts_that_go_on_count_while_a_role_is_restarted(client: Client) -> None:
    """Of a downtime of ten minutes the restart of the trainer took five, in which four machines of six went on."""
    at = time.time()
    trained(client, (at - 2_000, at))
    seed(client.service.database, "inc-a", at=at - 1_000, closed_at=at - 400)
    cost(client, "inc-a", onset_at=at - 1_000, first_good_at=at - 400)
    restart = RoleRestart(epochs={"0": 3, "1": 4}, at_work=4 / 6)
    one = Remediation(
        id="rem-1", incident="inc-a", verdict_version=1, job=JOB, attempt=1, kind="restart_role", nodes=(), role="trainer",
        fault_class="role_lost", symptom="crash", probability=0.9, why="", proposed_at=at - 950, began_at=at - 900,
        changed_at=at - 600, status="done", outcome="cured", role_restart=restart,
    )  # fmt: skip
    with client.service.database.transaction() as session:
        rows.write_remediation(session, one)

    ledger = client.get(f"/v1/jobs/{JOB}/downtime").json()

    assert ledger["training_seconds"] == pytest.approx(2_000 - 600, abs=5)
    assert ledger["partial_seconds"] == pytest.approx(200, abs=1)
    assert ledger["ettr"]["cumulative"] == pytest.approx(0.7, abs=0.01)
    assert ledger["ettr"]["cumulative_partial"] == pytest.approx(0.8, abs=0.01)
    shown = client.get(f"/jobs/{JOB}").text
    assert "<dd>70.0 %</dd>" in shown
    assert "<dd>80.0 %, 80.0 % in the last hour</dd>" in shown


def test_alarms_are_listed_until_they_are_over(client: Client) -> None:
    """Alarms come the newest first; those that go on and those that are over can be had apart, as can a job's."""
    at = time.time()  # retention deletes what was over long ago
    with client.service.database.transaction() as session:
        for number, over in enumerate((None, at, None)):
            session.add(
                Alarm(kind="coverage", job=f"j{number}", text="t", nodes=["n"], raised_at=at + number, over_at=over)
            )

    def ids(asked: str = "") -> list[int]:
        return [one["id"] for one in client.get(f"/v1/alarms{asked}").json()["items"]]

    assert ids() == [3, 2, 1]
    assert (ids("?status=raised"), ids("?status=over"), ids("?job=j2")) == ([3, 1], [2], [3])
    first = client.get("/v1/alarms?limit=2").json()
    assert ids(f"?after={first['next']}") == [1]


def test_now_is_everything_at_a_glance(client: Client) -> None:
    """Open incidents, those closed last, the jobs that run, who reports, alarms, and where the stream begins."""
    at = time.time()
    for node in ("gpu-0001", "gpu-0002"):
        client.ship(node, [an_event(node)])
    client.eventually("/v1/nodes", lambda page: len(page["items"]) == 2)
    trained(client, (at - 1_000, at))
    trained(client, (at - 9_000, at - 8_000), name="ended")
    seed(client.service.database, "inc-a", at=at - 100)
    seed(client.service.database, "inc-b", at=at - 90, closed_at=at - 80)
    with client.service.database.transaction() as session:
        session.add(Alarm(kind="clock", job=None, text="t", nodes=[], raised_at=at, over_at=None))
        session.add(Cursor(reader="engine", sequence=1))

    now = client.get("/v1/now").json()

    assert (now["open"], [one["id"] for one in now["incidents"]]) == (1, ["inc-a"])
    assert [one["id"] for one in now["closed"]] == ["inc-b"]
    assert [(one["name"], one["attempt"], one["incidents"]) for one in now["jobs"]] == [(JOB, 0, ["inc-a"])]
    assert now["sight"] == {"nodes": 2, "reporting": 2, "silent": []}
    assert [one["kind"] for one in now["alarms"]] == ["clock"]
    assert (now["engine"]["standing"], now["engine"]["lag_batches"]) == ("none", 1)
    stream = client.get("/v1/stream", params={"after": now["stream_after"], "wait_seconds": 0}).text
    assert "data:" not in stream


def test_now_of_an_empty_service(client: Client) -> None:
    """A service that has seen nothing has nothing to tell, and says so without failing."""
    now = client.get("/v1/now").json()

    assert (now["open"], now["incidents"], now["jobs"], now["stream_after"]) == (0, [], [], 0)
