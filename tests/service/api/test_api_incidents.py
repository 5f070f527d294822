"""Incidents over REST: listed, read version by version, judged by people, closed by hand."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace

from analyzers.model.verdict import to_json
from collectors.records import Placement, block, bundle
from service.store.models import Cursor, Incident, Pin
from service.store.retention import REMOVED
from tests.support.incident_rows import AT, JOB, SYMPTOM, seed, verdict
from tests.support.served import Client, an_event

ID = "inc-0123456789ab"


def ids(client: Client, **asked: object) -> list[str]:
    """Return the ids that a list gives."""
    answer = client.get("/v1/incidents", params={key: str(value) for key, value in asked.items()})
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["items"]]


def several(client: Client) -> None:
    """Store four incidents: two open of one job, one closed of another, one of the fleet."""
    database = client.service.database
    seed(database, "inc-a", at=AT)
    seed(database, "inc-b", at=AT + 10, verdicts=())
    seed(database, "inc-c", at=AT + 20, job="other", nodes=["gpu-00010", "rack_1"], closed_at=AT + 60, kind="crash")
    seed(database, "inc-d", at=AT + 20, job=None, nodes=["rack-1"], verdicts=(), kind="infrastructure")


def test_a_list_is_the_newest_first(client: Client) -> None:
    """Incidents come by their opening, those of the same instant by their id, and pages lose and repeat none."""
    several(client)
    first = client.get("/v1/incidents?limit=1").json()
    seen, cursor = [first["items"][0]["id"]], first["next"]
    while cursor:
        page = client.get("/v1/incidents", params={"limit": 1, "after": cursor}).json()
        seen, cursor = seen + [one["id"] for one in page["items"]], page["next"]

    assert ids(client) == seen == ["inc-d", "inc-c", "inc-b", "inc-a"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"job": JOB}, ["inc-b", "inc-a"]),
        ({"status": "open"}, ["inc-d", "inc-b", "inc-a"]),
        ({"status": "closed", "kind": "crash"}, ["inc-c"]),
        ({"node": "gpu-0001"}, ["inc-b", "inc-a"]),  # and not gpu-00010
        ({"node": "rack_1"}, ["inc-c"]),  # and not rack-1, which LIKE would take for the same
        ({"since": AT + 10, "until": AT + 20}, ["inc-b"]),
        ({"job": "nobody's"}, []),
    ],
)
def test_a_list_is_filtered(client: Client, asked: dict[str, object], expected: list[str]) -> None:
    """Each filter leaves what it says, and several leave what is in all of them."""
    several(client)

    assert ids(client, **asked) == expected


def test_a_list_shows_the_newest_verdict_in_short(client: Client) -> None:
    """An incident in a list says what its newest verdict says; one without a verdict says null."""
    several(client)

    _, _, without, judged = client.get("/v1/incidents").json()["items"]

    assert without["verdict"] is None
    assert judged["verdict"] == {
        "version": 2, "at": AT + 10, "symptom": "hang", "cause": "machine", "abstained": False, "action": "evict",
        "culprits": [{
            "root": "", "kind": "node", "id": "gpu-0002", "ranks": [3], "role": None, "names": [], "probability": 0.97,
        }],
    }  # fmt: skip
    assert (judged["status"], judged["onset_at"], judged["nodes"]) == ("open", AT - 12, ["gpu-0001", "gpu-0002"])


@pytest.mark.parametrize("cursor", ["x", "WzEsIlx1MDAwMCJd", "WyJhIiwxXQ", "WzFlNDAwLCJhIl0"])
def test_a_cursor_that_no_page_gave_is_refused(client: Client, cursor: str) -> None:
    """What is no cursor, or holds what no database takes, is answered with 422."""
    assert client.get("/v1/incidents", params={"after": cursor}).status_code == 422


def test_an_incident_shows_all_that_hangs_on_it(client: Client) -> None:
    """Symptoms, cost, feedback and the verdict's versions stand in the incident's own document."""
    seed(client.service.database)

    answer = client.get(f"/v1/incidents/{ID}")

    document = answer.json()
    assert answer.headers["ETag"] == '"1"'
    assert [(one["detector"], one["ranks"]) for one in document["symptoms"]] == [("no_progress", [3])]
    assert (document["downtime"]["detected_at"], document["downtime"]["first_good_at"]) == (AT, None)
    assert [(one["version"], one["action"], one["cut"]["looks"]) for one in document["versions"]] == [
        (2, "evict", 2), (1, "probe", 1)
    ]  # fmt: skip
    assert document["feedback"] == []
    assert client.get("/v1/incidents/inc-none").status_code == 404


def test_a_symptom_of_no_known_instant_is_shown(client: Client) -> None:
    """An instant that is not a number is stored as null, and neither the document nor the page breaks on it."""
    seed(client.service.database, ID)
    with client.service.database.transaction() as session:
        row = session.get(Incident, ID)
        assert row is not None
        row.state = {**row.state, "symptoms": [{**SYMPTOM, "at": float("nan")}]}

    assert client.get(f"/v1/incidents/{ID}").json()["symptoms"][0]["at"] == 0.0
    assert client.get(f"/incidents/{ID}").status_code == 200


def test_a_verdict_is_the_bytes_that_were_published(client: Client) -> None:
    """The document comes byte for byte, the newest or the version that was asked for, and the header says which."""
    seed(client.service.database)

    newest, first = (client.get(f"/v1/incidents/{ID}/verdict{asked}") for asked in ("", "?version=1"))

    assert newest.content == to_json(verdict())
    assert first.content == to_json(verdict(action="probe"))
    assert [one.headers["Faulthound-Verdict-Version"] for one in (newest, first)] == ["2", "1"]
    assert client.get(f"/v1/incidents/{ID}/verdict?version=3").status_code == 404


def test_a_verdict_that_is_known_is_not_sent_again(client: Client) -> None:
    """Whoever has the newest version is answered without a body, and gets the next one when there is one."""
    seed(client.service.database)
    tag = client.get(f"/v1/incidents/{ID}/verdict").headers["ETag"]

    known = client.get(f"/v1/incidents/{ID}/verdict", headers={"If-None-Match": tag})
    old = client.get(f"/v1/incidents/{ID}/verdict", headers={"If-None-Match": '"1"'})

    assert (known.status_code, known.content) == (304, b"")
    assert old.status_code == 200


def test_an_incident_without_a_verdict_says_so(client: Client) -> None:
    """Where nothing is published yet the verdict is 404 with a reason, lists are empty, and feedback is a conflict."""
    seed(client.service.database, verdicts=())

    assert "no verdict yet" in client.get(f"/v1/incidents/{ID}/verdict").json()["detail"]
    assert client.get(f"/v1/incidents/{ID}/findings").status_code == 404
    assert client.get(f"/v1/incidents/{ID}/verdicts").json() == {"items": [], "next": None}
    assert client.post(f"/v1/incidents/{ID}/feedback", json={"judgement": "right"}).status_code == 409


def test_versions_findings_and_timeline_are_lists(client: Client) -> None:
    """The versions, the claims behind one of them and what has happened are each a list with a cursor."""
    seed(client.service.database, closed_at=AT + 60)
    path = f"/v1/incidents/{ID}"

    versions = client.get(f"{path}/verdicts?limit=1").json()
    rest = client.get(f"{path}/verdicts", params={"after": versions["next"]}).json()
    findings = client.get(f"{path}/findings?version=1").json()
    timeline = client.get(f"{path}/timeline").json()["items"]

    assert [one["version"] for one in versions["items"] + rest["items"]] == [1, 2]
    assert (findings["version"], findings["items"][0]["analyzer"]) == (1, "hang")
    assert [one["kind"] for one in timeline] == ["opened", "published", "published", "closed"]
    assert [one["sequence"] for one in timeline] == sorted(one["sequence"] for one in timeline)


def test_feedback_is_kept_and_told(client: Client) -> None:
    """What an operator says stands at the incident, in its timeline and in the audit log, with the version it is of."""
    seed(client.service.database)
    path = f"/v1/incidents/{ID}"
    wish = {"judgement": "wrong", "culprit": {"kind": "switch", "id": "leaf-7"}, "text": "two\nlines", "version": 1}

    given = client.post(f"{path}/feedback", json=wish)

    assert given.status_code == 201
    incident = client.get(path)
    assert incident.json()["feedback"] == [given.json()]
    assert (given.json()["culprit"], given.json()["verdict_version"]) == (wish["culprit"], 1)
    assert incident.headers["ETag"] == '"2"'
    assert client.get(f"{path}/timeline").json()["items"][-1]["details"]["judgement"] == "wrong"
    assert client.get("/v1/events?kind=feedback_given").json()["items"][0]["subject"] == ID


def test_feedback_under_one_key_is_given_once(client: Client) -> None:
    """The same key and words are stored once and answered the same; other words under the key are refused."""
    seed(client.service.database)
    path, key = f"/v1/incidents/{ID}/feedback", {"Idempotency-Key": "k"}

    first, again = (client.post(path, json={"judgement": "right"}, headers=key) for _ in range(2))
    other = client.post(path, json={"judgement": "wrong"}, headers=key)

    assert first.json() == again.json()
    assert other.status_code == 422
    assert len(client.get(f"/v1/incidents/{ID}").json()["feedback"]) == 1


def test_one_of_two_that_are_named_may_be_called_the_culprit(client: Client) -> None:
    """That the other one is innocent is feedback, and has no other form."""
    both = replace(verdict(), culprits=(*verdict().culprits, replace(verdict().culprits[0], id="gpu-0005", ranks=(9,))))
    seed(client.service.database, verdicts=(both,))
    wish = {"judgement": "wrong", "culprit": {"kind": "node", "id": "gpu-0005"}}

    assert client.post(f"/v1/incidents/{ID}/feedback", json=wish).status_code == 201


@pytest.mark.parametrize(
    "wish",
    [
        {"judgement": "maybe"},
        {"judgement": "right", "culprit": {"kind": "node", "id": "gpu-0001"}},
        {"judgement": "wrong", "culprit": {"kind": "node"}},
        {"judgement": "wrong", "culprit": {"kind": "node", "id": "gpu-0002"}},
        {"judgement": "wrong", "culprit": {"kind": "rank", "id": "3"}},
        {"judgement": "wrong", "text": "x" * 2_001},
        {"judgement": "wrong", "text": "a\x00b"},
        {"judgement": "wrong", "version": 0},
        {},
    ],
)
def test_feedback_that_makes_no_sense_is_refused(client: Client, wish: dict[str, object]) -> None:
    """A word outside the set, a culprit of a right verdict, or what a wrong one names itself, is 422 and stores nothing."""
    seed(client.service.database)

    assert client.post(f"/v1/incidents/{ID}/feedback", json=wish).status_code == 422
    assert client.get(f"/v1/incidents/{ID}").json()["feedback"] == []


def test_an_incident_is_closed_by_who_has_seen_it(client: Client) -> None:
    """Without ETag closing is 428, with an old one 412; with the newest it is closed, reported, and closed only once."""
    seed(client.service.database)
    path, wish = f"/v1/incidents/{ID}", {"reason": "we restarted it"}

    assert client.post(f"{path}/close", json=wish).status_code == 428
    assert client.post(f"{path}/close", json=wish, headers={"If-Match": '"9"'}).status_code == 412
    closed = client.post(f"{path}/close", json=wish, headers={"If-Match": '"1"'})

    assert (closed.status_code, closed.json()["status"], closed.headers["ETag"]) == (200, "closed", '"2"')
    assert closed.json()["closed_because"].endswith(": we restarted it")
    assert client.post(f"{path}/close", json=wish, headers={"If-Match": '"2"'}).status_code == 409
    assert client.get(f"{path}/timeline").json()["items"][-1]["kind"] == "closed"
    assert client.get("/v1/events?kind=incident_closed").json()["items"][0]["details"] == wish


def exported(client: Client) -> list[bundle.Entry]:
    """Return the entries of the incident's bundle."""
    return list(bundle.read(io.BytesIO(client.get(f"/v1/incidents/{ID}/export").content)))


def test_an_export_is_what_was_judged(client: Client) -> None:
    """A bundle holds the versions as published, the context, and of the incident's nodes the batches up to the last cut."""
    for batch, node in enumerate(["gpu-0001", "gpu-0002", "gpu-0003", "gpu-0001", "gpu-0002"]):
        sent = {"Faulthound-Sent-At": "5.0"}
        assert client.ship(node, [an_event(node, batch)], f"b{batch}", **sent).status_code == 202
    context = block.encode([Placement(job=JOB, node="gpu-0001")], pack=True)
    seed(client.service.database, nodes=["gpu-0002", "gpu-0001"], after=1, through=2, context=context)

    manifest, first, second, before, *batches = exported(client)

    assert isinstance(manifest, bundle.Manifest)
    assert manifest.incident is not None
    assert (manifest.job, manifest.nodes, manifest.missing) == (JOB, ("gpu-0001", "gpu-0002"), ())
    assert (manifest.incident.id, manifest.incident.after) == (ID, 1)
    assert manifest.incident.nodes == ("gpu-0002", "gpu-0001")  # a cut names the first so many
    assert [cut["through"] for cut in manifest.incident.cuts] == [3, 4]
    assert isinstance(first, bundle.Published)
    assert isinstance(second, bundle.Published)
    assert (first.document, second.document) == (to_json(verdict(action="probe")), to_json(verdict()))
    assert before == bundle.Batch(0, AT, context)
    assert [(one.sequence, one.node, one.sent_at) for one in batches if isinstance(one, bundle.Batch)] == [
        (2, "gpu-0002", 5.0), (4, "gpu-0001", 5.0)
    ]  # fmt: skip


def test_an_export_without_verdict_has_what_came(client: Client) -> None:
    """Before the first version the bundle has all batches of the incident's nodes from its beginning on."""
    for batch in range(3):
        client.ship("gpu-0001", [an_event()], f"b{batch}")
    seed(client.service.database, verdicts=(), after=1)

    _manifest, *batches = exported(client)

    assert [one.sequence for one in batches if isinstance(one, bundle.Batch)] == [2, 3]


def test_an_export_says_what_retention_removed(client: Client) -> None:
    """Where batches after the incident's beginning were removed the manifest says so, unless its own pin has kept its span."""
    for batch in range(3):
        client.ship("gpu-0001", [an_event()], f"b{batch}")
    database = client.service.database
    seed(database, after=0, through=1)
    with database.transaction() as session:
        session.add(Cursor(reader=REMOVED, sequence=2))

    def reported() -> tuple[str, ...]:
        manifest = exported(client)[0]
        assert isinstance(manifest, bundle.Manifest)
        return manifest.missing

    assert ["retention has removed batches" in one for one in reported()] == [True]
    with database.transaction() as session:
        pin = Pin(job=JOB, since=0.0, until=1e11, reason="incident inc-another", by="engine", made_at=AT)
        session.add(pin)
        session.flush()
        row = session.get(Incident, ID)
        assert row is not None
        row.pin = pin.id
    assert len(reported()) == 1  # SQLite gives the number of a deleted pin again
    with database.transaction() as session:
        session.get_one(Pin, pin.id).reason = f"incident {ID}"
    assert reported() == ()


def test_reading_needs_read_and_acting_remediate(client: Client) -> None:
    """A reader's token lists and reads and may not judge or close; an agent's token may do none of it."""
    seed(client.service.database)
    tokens = {scope: client.service.tokens.make(scope, [scope])[1] for scope in ("read", "remediate", "ingest")}
    acts = {"feedback": {"judgement": "right"}, "close": {"reason": "x"}}

    def statuses(scope: str) -> list[int]:
        as_ = client.as_(tokens[scope])
        read = [as_.get(path).status_code for path in ("/v1/incidents", f"/v1/incidents/{ID}/verdict")]
        return read + [as_.post(f"/v1/incidents/{ID}/{act}", json=body).status_code for act, body in acts.items()]

    assert statuses("read") == [200, 200, 403, 403]
    assert statuses("ingest") == [403] * 4
    assert statuses("remediate") == [200, 200, 201, 428]
