"""Jobs, nodes, commands, exports and pins: what is derived from records, declared by people, and asked of agents."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from collectors.live import Request as Asked
from collectors.records import CommandResult, Coverage, Device, Members, Placement, bundle
from tests.support.bounds import in_time
from tests.support.served import Client, an_event

JOB = "llama-405b"


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
    reported = client.get("/v1/events?kind=job_declared").json()["items"]
    assert [one["subject"] for one in reported] == [JOB, JOB]


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
        "service.api.resources.commands.newest_ranks", lambda *_: [(rank, "", f"n{rank // 8}") for rank in ranks]
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


def test_readiness_tells_what_is_wrong(client: Client) -> None:
    """A service is ready while its log is written and read; a writer that has ended makes it say so."""
    assert client.get("/readyz").json()["status"] == "ok"
    client.service.appender.close()

    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["errors"][0]["pointer"] == "appender"
    assert client.ship("gpu-0001", [an_event()]).status_code == 503


def test_a_command_asks_for_ranks_of_one_role(client: Client) -> None:
    """Where roles share numbers, rank 1 of a role is one process, and each node gets its own."""
    roles = {"gpu-0001": ("trainer", "rollout"), "gpu-0002": ("rollout", "trainer")}
    for node, own in roles.items():
        records = [
            msgspec.structs.replace(placed(node, 1 + place, job="rl"), role=role) for place, role in enumerate(own)
        ]
        client.ship(node, records)
    client.eventually("/v1/jobs/rl/ranks", lambda page: len(page["items"]) == 4)

    def asked(**arguments: object) -> dict[str, object]:
        answer = client.post("/v1/jobs/rl/commands", json={"verb": "stacks", "arguments": arguments})
        return {one["node"]: one["arguments"] for one in answer.json()["items"]} if answer.status_code == 202 else {}

    own = {"native": False, "job": "rl"}
    assert asked(roles={"rollout": [1]}) == {"gpu-0002": {**own, "roles": {"rollout": [1]}}}
    assert asked(ranks=[2], roles={"trainer": [1]}) == {
        "gpu-0001": {**own, "ranks": [2], "roles": {"trainer": [1]}},
        "gpu-0002": {**own, "ranks": [2]},
    }
    assert asked(ranks=[1]) == {node: {**own, "ranks": [1]} for node in roles}
    assert asked(roles={"reward": [1]}) == {}


@pytest.mark.parametrize(
    ("arguments", "covered"),
    [
        ({}, {("trainer", 1), ("rollout", 1), ("rollout", 2), (None, 1)}),
        ({"ranks": [1]}, {("trainer", 1), ("rollout", 1), (None, 1)}),
        ({"roles": {"rollout": [1]}}, {("rollout", 1)}),
        ({"ranks": [2], "roles": {"trainer": [1]}}, {("trainer", 1), ("rollout", 2)}),
        ({"job": "another"}, set()),
    ],
)
def test_an_agent_takes_the_ranks_of_a_role(arguments: dict[str, object], covered: set[tuple[str | None, int]]) -> None:
    """By number of every role, by role and number, or all of the job."""
    seats = {("trainer", 1), ("rollout", 1), ("rollout", 2), (None, 1)}

    assert {(role, rank) for role, rank in seats if Asked("stacks", arguments).covers(rank, "rl", role)} == covered
