"""A service that is attacked over REST, and who attacks it."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
from msgspec.structs import replace
from sqlalchemy import func, select

from analyzers.remediation.messages import RemediationTick
from service.clock import now
from service.store.models import Execution, ShadowCase
from service.store.models import Remediation as Row
from tests.support.incident_rows import seed, verdict
from tests.support.remediation_rows import (
    NODES,
    PLAN_ID,
    cleared,
    plan,
    propose,
    running,
)
from tests.support.served import Client

URL = f"/v1/remediations/{PLAN_ID}"

RULE = "never-entered"

LIARS = tuple(f"liar-{number:02d}" for number in range(6))

POLICY = f"""
[limits]
evictions_an_hour = {{budget}}
breaker_least_nodes = 3

[[rules]]
name = "{RULE}"
mode = "automatic"
fault_class = "never_entered"
least_probability = 0.9
least_precision = 0.8
"""


# Everything that changes what is done, with a body that would be good if it came from somebody who may.
CHANGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "approve": ("POST", f"{URL}/approve", {"reason": "x"}),
    "reject": ("POST", f"{URL}/reject", {"reason": "x"}),
    "cancel": ("POST", f"{URL}/cancel", {"reason": "x"}),
    "undo": ("POST", f"{URL}/undo", {"reason": "x"}),
    "hold": ("POST", "/v1/holds", {"node": NODES[0], "reason": "x", "seconds": 60}),
    "freeze": ("PUT", "/v1/freeze", {"frozen": True, "reason": "x"}),
    "close breaker": ("POST", "/v1/breaker/close", {"reason": "x"}),
    "claim": ("POST", f"{URL}/claim", {"seconds": 60}),
    "begin": ("POST", f"{URL}/begin", {"token": 1}),
    "heartbeat": ("POST", f"{URL}/heartbeat", {"token": 1}),
    "complete": ("POST", f"{URL}/complete", {"token": 1}),
    "fail": ("POST", f"{URL}/fail", {"token": 1, "reason": "x"}),
}

DECIDES = ("approve", "reject", "cancel", "undo", "hold", "freeze", "close breaker")

ACTS = ("claim", "begin", "heartbeat", "complete", "fail")


def holder(client: Client, scope: str, node: str | None = None) -> Client:
    """Return the client of a new token."""
    return client.as_(client.service.tokens.make(f"{scope} {node or ''}".strip(), [scope], node)[1])


def attack(client: Client, change: str, **headers: str) -> httpx.Response:
    """Send a change as it is when it is good, but for who sends it."""
    method, path, body = CHANGES[change]
    return client.request(method, path, json=body, headers={"If-Match": "*", **headers})


def evicted(client: Client) -> list[str]:
    """Return the nodes that anybody was ever let take out."""
    with client.service.database.session() as session:
        begun = [row for row in session.scalars(select(Row)) if row.document.get("began_at")]
        counted = session.scalar(select(func.count()).select_from(Execution))
    assert counted == len(begun)
    return sorted(node for row in begun for node in row.nodes)


def noted(client: Client, kind: str) -> list[dict[str, Any]]:
    """Return what the audit log has of a kind, once it has something."""
    return list(client.eventually(f"/v1/events?kind={kind}", lambda page: page["items"])["items"])


def state(client: Client) -> dict[str, Any]:
    """Return all that an attack could have changed."""
    return {path: client.get(path).json() for path in (URL, "/v1/holds", "/v1/freeze", "/v1/breaker")}


def believed(client: Client) -> None:
    """Six nodes of six jobs lie about themselves, and the engine believes every one; the rule is long unlocked."""
    service, at = client.service, now()
    cleared(service.database)
    ids = [f"{number:012d}" for number in range(40)]
    shadow = [replace(plan(f"rem-{id}"), incident=f"inc-{id}", rule=RULE, mode="shadow") for id in ids]
    with service.database.transaction() as session:
        for one in shadow:
            session.add(
                ShadowCase(
                    remediation=one.id, incident=one.incident, at=at, closed_at=at, correct=True, because="",
                    document=msgspec.to_builtins(one),
                )
            )  # fmt: skip
    for number, liar in enumerate(LIARS):
        incident, job = f"inc-{number:012x}", f"job-{number}"
        running(service.database, job, (liar, f"honest-{number:02d}"))
        seed(
            service.database,
            incident,
            at=at - 60,
            job=job,
            nodes=(liar,),
            verdicts=(verdict(liar, "probe"), verdict(liar)),
        )
        propose(service.remedies, plan(f"rem-{number:012x}", incident, job, (liar,)))


def diligent(client: Client) -> list[int]:
    """Let a scheduler carry out whatever it gets, and return what its beginnings were answered."""
    slurm, found = holder(client, "execute"), []
    client.service.remedies.handle(RemediationTick(), now())
    for number in range(len(LIARS)):
        url = f"/v1/remediations/rem-{number:012x}"
        claimed = slurm.post(f"{url}/claim", json={})
        if claimed.is_success:
            token = {"token": claimed.json()["token"]}
            begun = slurm.post(f"{url}/begin", json=token).status_code
            found.append(begun)
            if begun == 200:
                slurm.post(f"{url}/complete", json=token)
    return found
