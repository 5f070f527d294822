"""A person asks for the restart of one role: it becomes a proposal like those of verdicts, under the same guards."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from pydantic import Field
from sqlalchemy.orm import Session

from analyzers.model.verdict import TAKES_NODES
from analyzers.remediation.messages import Proposed
from analyzers.remediation.types import RemediationState, list_some
from service.api import auth, fields
from service.api.auth import Caller
from service.api.problems import Problem, documented
from service.api.remediation_documents import RemediationDocument
from service.api.resources.roles import Key
from service.api.routing import Router
from service.api.state import service_of
from service.api.steps import take_of_one
from service.clock import now
from service.remediation.repository import Check
from service.remediation.role_facts import NotRestarted, build_request

router = Router("remediations")


class RoleRestartRequest(fields.Body):
    """Which role, and why."""

    role: Key = Field(description="The role: trainer, rollout, reward …")
    instance: Key | None = Field(None, description="Which one of its role; null: all. A trainer's are one group.")
    reason: fields.Text = Field(description="Why.")


@router.post("/v1/jobs/{job:path}/roles/restart", responses=documented("not-found", "conflict"))
def propose_role_restart(
    request: Request, job: fields.JobPath, asked: RoleRestartRequest, caller: Annotated[Caller, auth.REMEDIATE]
) -> RemediationDocument:
    """Propose to restart a role, or one instance of it, while the others go on. It still has to be approved.

    It is refused where only a restart of the whole job helps (docs/remediation.md).
    """
    auth.check_job(request, caller, job)
    service, at = service_of(request), now()
    try:
        with service.database.session() as session:
            one = build_request(
                session, job, asked.role, asked.instance, caller.actor, asked.reason, at, service.role_rules()
            )
    except NotRestarted as why:
        raise Problem("not-found" if why.unknown else "conflict", str(why)) from None
    return take_of_one(service, caller, Proposed(incident=one.incident, plan=one), one.id, _unrivalled(job))[1]


def _unrivalled(job: str) -> Check:
    """Return the check that nothing is proposed for the job that takes nodes out: the step lets no other plan beside it."""

    def check(_session: Session, state: RemediationState) -> None:
        for one in state.remediations.values():
            if one.job == job and one.status == "proposed" and one.kind in TAKES_NODES:
                raise Problem(
                    "conflict", f"{one.id} would take {list_some(one.nodes)} out of {job}: decide about it first"
                )

    return check
