"""Jobs, nodes, commands, exports and pins: what is derived from records, declared by people, and asked of agents."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy.orm import Session

from collectors.formats import registry
from collectors.records import CommandResult, Coverage, Device, Members, Placement, block, bundle
from service.api import spans
from service.settings import Settings
from service.store.models import Batch, Cursor
from service.store.retention import Retention
from tests.support.bounds import in_time
from tests.support.served import Client, an_event, served

JOB = "llama-405b"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Return a client of a new service."""
    with served(tmp_path) as client:
        yield client


def placed(node: str, *ranks: int, job: str = JOB, attempt: int = 0) -> Placement:
    """Return what an agent tells of its ranks."""
    return Placement(
        job=job, attempt=attempt, node=node, ranks=Members.of(ranks), nodes=(node,) * len(ranks), world_size=4,
        pids=tuple(100 + rank for rank in ranks),
    )  # fmt: skip


def running(client: Client) -> None:
    """Have two agents tell of a job of four ranks, and wait until the service has derived it."""
    for node, ranks in (("gpu-0001", (0, 1)), ("gpu-0002", (2, 3))):
        client.ship(node, [placed(node, *ranks), an_event(node)])
    client.eventually(f"/v1/jobs/{JOB}/ranks", lambda page: len(page["items"]) == 4)


def test_a_job_registers_itself(client: Client) -> None:
    """From placements alone the service knows the job, its attempt, and the node of each rank."""
    running(client)

    job = client.get(f"/v1/jobs/{JOB}").json()
    ranks = client.get(f"/v1/jobs/{JOB}/ranks").json()["items"]

    assert job["declared"] is None
    assert [(one["number"], one["ranks"], one["nodes"]) for one in job["attempts"]] == [(0, 4, 2)]
    assert [(one["rank"], one["node"], one["pid"]) for one in ranks] == [
        (0, "gpu-0001", 100), (1, "gpu-0001", 101), (2, "gpu-0002", 102), (3, "gpu-0002", 103)
    ]  # fmt: skip
    assert [one["name"] for one in client.get("/v1/jobs").json()["items"]] == [JOB]


def test_a_job_may_have_slashes(client: Client) -> None:
    """A name as Kubernetes and Ray give it is one job, below which its ranks and its export stand."""
    client.ship("gpu-0001", [placed("gpu-0001", 0, job="ns/llama/7")])
    client.eventually("/v1/jobs/ns/llama/7", lambda job: job["name"] == "ns/llama/7")

    assert len(client.get("/v1/jobs/ns/llama/7/ranks").json()["items"]) == 1
    assert client.get("/v1/jobs/ns/llama/7/export").content.startswith(bundle.MAGIC)
    assert client.get("/v1/jobs/ns/llama").status_code == 404


def test_a_node_shows_what_its_agent_sees(client: Client) -> None:
    """A node has its devices and its agent's newest account."""
    device = Device(type="gpu", id="GPU-5a", index=0, pci="0000:9b:00", name="H200")
    client.ship("gpu-0001", [device, Coverage(agent_version="0.1.0")], **{"Faulthound-Sent-At": "5.0"})

    node = client.eventually("/v1/nodes/gpu-0001", lambda node: node["devices"])

    assert node["agent_version"] == "0.1.0"
    assert node["devices"]["GPU-5a"]["pci"] == "0000:9b:00"
    assert node["clock_offset_seconds"] < -1e9


def test_a_declaration_needs_no_tag_and_a_change_does(client: Client) -> None:
    """The first declaration is taken as it is; a change without ETag is 428, with an old one 412, with the newest 200."""
    running(client)
    path, body = f"/v1/jobs/{JOB}", {"world_size": 4, "roles": {"trainer": "0-3"}, "parallel": {"pp": 2, "dp": 2}}
    first = client.put(path, json=body)
    tag = first.headers["ETag"]

    assert first.status_code == 200
    assert client.get(path).headers["ETag"] == tag
    assert client.put(path, json=body).status_code == 428
    changed = client.put(path, json={**body, "code_version": "abc"}, headers={"If-Match": tag})
    assert changed.json()["declared"]["code_version"] == "abc"
    assert client.put(path, json=body, headers={"If-Match": tag}).status_code == 412
    told = client.get("/v1/events?kind=job_declared").json()["items"]
    assert [one["subject"] for one in told] == [JOB, JOB]


def test_a_declaration_gives_its_runs_their_code(client: Client) -> None:
    """The declared code version stands at the run that it is for and at those after it, and not at the run before."""
    for attempt in (0, 1):
        client.ship("gpu-0001", [placed("gpu-0001", 0, attempt=attempt)], f"b{attempt}")
    client.eventually(f"/v1/jobs/{JOB}", lambda job: len(job["attempts"]) == 2)
    declared = client.put(f"/v1/jobs/{JOB}", json={"world_size": 4, "attempt": 1, "code_version": "abc"})
    client.ship("gpu-0001", [placed("gpu-0001", 0, attempt=2)], "b2")

    job = client.eventually(f"/v1/jobs/{JOB}", lambda job: len(job["attempts"]) == 3)

    assert {one["number"]: one["code_version"] for one in declared.json()["attempts"]} == {0: None, 1: "abc"}
    assert {one["number"]: one["code_version"] for one in job["attempts"]} == {0: None, 1: "abc", 2: "abc"}


@pytest.mark.parametrize(
    ("wrong", "pointer", "said"),
    [
        ({"nodes": ["gpu-0001"]}, "/nodes", "1 nodes for 4 ranks"),
        (
            {"roles": {"critic": "2-4"}},
            "/roles/critic",
            "rank 4 of role critic is outside job llama-405b (world size 4)",
        ),
        ({"roles": {"critic": "3-1"}}, "/roles/critic", "'3-1' is no rank"),
        ({"parallel": {"pp": 3}}, "/parallel", "multiply to 3"),
        ({"parallel": {"zz": 1}}, "/parallel/zz", "tp, pp, dp, cp, ep"),
        ({"world_size": 0}, "/world_size", "greater than or equal to 1"),
        ({"colour": "red"}, "/colour", "not permitted"),
    ],
)
def test_a_declaration_must_agree_with_itself(
    client: Client, wrong: dict[str, object], pointer: str, said: str
) -> None:
    """A declaration whose parts contradict each other is refused, and the problem says which and why."""
    answer = client.put(f"/v1/jobs/{JOB}", json={"world_size": 4, **wrong})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert said in answer.json()["detail"]


def test_a_list_goes_on_where_it_stopped(client: Client) -> None:
    """Pages of two give every node once and in order, also where a node comes in between; a made-up cursor is refused."""
    for number in (1, 2, 3, 5):
        client.ship(f"gpu-{number}", [an_event(f"gpu-{number}")])
    client.eventually("/v1/nodes", lambda page: len(page["items"]) == 4)
    first = client.get("/v1/nodes?limit=2").json()
    client.ship("gpu-4", [an_event("gpu-4")])
    client.eventually("/v1/nodes", lambda page: len(page["items"]) == 5)
    second = client.get("/v1/nodes", params={"limit": 3, "after": first["next"]}).json()

    assert [one["name"] for one in first["items"] + second["items"]] == [f"gpu-{number}" for number in range(1, 6)]
    assert second["next"] is None
    for cursor in ("x", "eA", "e30", "AAAA", "Ilx1MDAwMCI"):
        assert client.get("/v1/nodes", params={"after": cursor}).status_code == 422


def test_a_command_is_handed_out_once(client: Client) -> None:
    """A job's command goes to the nodes of its ranks, each takes its own once, and the results come back by record."""
    running(client)
    wish = {"verb": "stacks", "arguments": {"native": True, "ranks": [1, 2, 3]}}
    asked = client.post(f"/v1/jobs/{JOB}/commands", json=wish)
    assert asked.status_code == 202
    ids = {one["node"]: one["id"] for one in asked.json()["items"]}

    for _ in range(2):
        (waiting,) = client.get("/v1/nodes/gpu-0002/commands?wait_seconds=1").json()["commands"]
        assert waiting["id"] == ids["gpu-0002"], "a GET takes nothing"
    (taken,) = client.post("/v1/nodes/gpu-0002/commands/take").json()["commands"]
    assert taken["arguments"] == {"native": True, "ranks": [2, 3], "job": JOB}
    assert client.post("/v1/nodes/gpu-0002/commands/take").json()["commands"] == []
    client.ship("gpu-0001", [CommandResult(command=ids["gpu-0002"], verb="stacks", outcome="failed")], "lie")
    client.ship("gpu-0002", [CommandResult(command=ids["gpu-0002"], verb="stacks", text="2 processes")], "truth")

    ended = client.eventually(f"/v1/commands/{ids['gpu-0002']}", lambda command: command["outcome"])
    assert (ended["outcome"], ended["text"]) == ("done", "2 processes")
    both = client.get("/v1/commands", params={"id": [*ids.values(), "none"]}).json()["items"]
    assert [(one["node"], one["outcome"]) for one in both] == [("gpu-0001", None), ("gpu-0002", "done")]


def test_a_poll_is_woken_by_a_command(client: Client) -> None:
    """A poll that waits gets a command as soon as it is asked, and an empty list when its time is over."""
    running(client)
    got: list[tuple[float, list[dict[str, object]]]] = []

    def poll() -> None:
        answer = client.post("/v1/nodes/gpu-0001/commands/take?wait_seconds=20").json()
        got.append((time.monotonic(), answer["commands"]))

    thread = threading.Thread(target=poll)
    thread.start()
    deadline = time.monotonic() + 60
    while not client.service.waiting.count and time.monotonic() < deadline:
        time.sleep(0.01)
    asked_at = time.monotonic()
    client.post("/v1/nodes/gpu-0001/commands", json={"verb": "read", "arguments": {"collector": "kernel"}})
    thread.join(timeout=60)

    assert [one["verb"] for one in got[0][1]] == ["read"]
    assert in_time(got[0][0] - asked_at, 5)
    assert client.post("/v1/nodes/gpu-0001/commands/take?wait_seconds=0.2").json() == {"commands": []}


def test_polls_are_bounded(client: Client) -> None:
    """A fifth poll of one node is turned away while four wait; stopping the service sends all of them home."""
    answers: list[int] = []

    def poll() -> None:
        answers.append(client.post("/v1/nodes/gpu-0001/commands/take?wait_seconds=20").status_code)

    threads = [threading.Thread(target=poll) for _ in range(4)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while client.service.waiting.count < 4 and time.monotonic() < deadline:
        time.sleep(0.01)

    assert client.post("/v1/nodes/gpu-0001/commands/take?wait_seconds=20").status_code == 429
    client.service.waiting._loop.call_soon_threadsafe(client.service.waiting.end_waits)
    for thread in threads:
        thread.join(timeout=60)
    assert answers == [200] * 4


@pytest.mark.parametrize(
    "wish",
    [
        {"verb": "shell", "arguments": {"command": "id"}},
        {"verb": "stacks", "arguments": {"command": "id"}},
        {"verb": "rate", "arguments": {"collector": "gpu", "every_seconds": 1, "for_seconds": 601}},
        {"verb": "read", "arguments": {"collector": "../x"}},
        {"verb": "read"},
    ],
)
def test_the_verbs_are_a_closed_set(client: Client, wish: dict[str, object]) -> None:
    """What is not among the verbs, and an argument outside its bound, is refused and never reaches an agent."""
    running(client)

    assert client.post("/v1/nodes/gpu-0001/commands", json=wish).status_code == 422
    assert client.get("/v1/nodes/gpu-0001/commands").json() == {"commands": []}


def test_commands_do_not_pile_up(client: Client) -> None:
    """An agent that takes nothing is asked for no more than 32 things; unknown nodes, jobs and ranks for nothing."""
    running(client)
    wish = {"verb": "recorders"}
    answers = [client.post("/v1/nodes/gpu-0001/commands", json=wish).status_code for _ in range(34)]

    assert answers == [202] * 32 + [429] * 2
    assert client.post("/v1/nodes/gpu-9/commands", json=wish).status_code == 404
    assert client.post("/v1/jobs/none/commands", json=wish).status_code == 404
    answer = client.post(f"/v1/jobs/{JOB}/commands", json={**wish, "arguments": {"ranks": [4097]}})
    assert answer.status_code == 404
    assert "none of the ranks 4097" in answer.json()["detail"]


@pytest.mark.system
def test_ranks_of_a_large_job_are_asked_in_no_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of 32,768 ranks are looked for once and not once for each: a second of it would stop every other request."""
    ranks = range(32_768)
    monkeypatch.setattr(
        "service.api.resources.commands.newest_ranks", lambda *_: [(rank, f"n{rank // 8}") for rank in ranks]
    )
    began = time.process_time()

    asked = client.post(f"/v1/jobs/{JOB}/commands", json={"verb": "stacks", "arguments": {"ranks": list(ranks[::2])}})

    assert len(asked.json()["items"]) == 4_096
    assert in_time(time.process_time() - began, 5)


def test_a_key_acts_once(client: Client) -> None:
    """The same key and request asks once and is answered the same; the same key for another request is refused."""
    running(client)
    path, key = "/v1/nodes/gpu-0001/commands", {"Idempotency-Key": "k"}
    first = client.post(path, json={"verb": "stacks"}, headers=key)
    again = client.post(path, json={"verb": "stacks"}, headers=key)
    other = client.post(path, json={"verb": "recorders"}, headers=key)

    assert again.json() == first.json()
    assert other.status_code == 422
    assert len(client.get(path).json()["commands"]) == 1


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


def removed(client: Client, batches: int) -> None:
    """Have retention delete so many of the oldest batches that are not pinned."""
    database = client.service.database
    log = client.service.log.read_from(0, 100)
    with database.transaction() as session:
        session.merge(Cursor(reader="compaction", sequence=log[-1].sequence))
    client.eventually("/readyz", lambda _: client.service.follower.sequence == log[-1].sequence)
    size = sum(len(one.block) for one in log)
    for _ in range(batches):
        swept = Retention(
            database, Settings(retention_bytes=1 << 20).model_copy(update={"retention_bytes": size - 1})
        ).sweep()
        size = swept.log_bytes


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

    told = missing(client, first.received_at - 1)

    assert told.startswith("the service no longer has every record from")
    assert "retention removed what was received before" in told
    assert "pinned" not in told
    assert "nothing came in this span from 1 of the job's nodes: gpu-0001" in told
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
    removed(client, 2)
    left = client.service.log.read_from(0, 10)

    assert [one.batch_id for one in left] == ["b1", "b3"]
    assert missing(client, first.received_at - 1).endswith("but for what is pinned")
    assert missing(client, left[1].received_at) == "nothing came in this span from 1 of the job's nodes: gpu-0001"


def test_an_export_that_retention_overtakes_breaks_off(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is deleted while the export streams ends it as an error: half of it is not taken for the whole."""
    running(client)
    _, second = client.service.log.read_from(0, 10)
    sizes = spans.sizes

    def late(session: Session, span: spans.Span) -> dict[str, int]:
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


def test_readiness_tells_what_is_wrong(client: Client) -> None:
    """A service is ready while its log is written and read; a writer that has ended makes it say so."""
    assert client.get("/readyz").json()["status"] == "ok"
    client.service.appender.close()

    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["errors"][0]["pointer"] == "appender"
    assert client.ship("gpu-0001", [an_event()]).status_code == 503
