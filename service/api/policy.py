"""The policy in force, and what shadow mode has shown of each of its rules. It is changed in its file, by who may write it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from analyzers.remediation.policy import MOST_BYTES, PolicyError, explain_lock, lower_bound, parse_policy
from analyzers.remediation.types import Mode, Policy, RemediationKind, Rule, Tally
from service.api import auth
from service.api.problems import documented
from service.api.state import of
from service.api.steps import Strict
from service.clock import now

router = APIRouter(tags=["policy"])


class LimitsDocument(BaseModel):
    """How much may be done in how short a time."""

    evictions_an_hour: int = Field(description="Nodes.")
    breaker_share: float
    breaker_least_nodes: int
    breaker_seconds: float
    proposal_seconds: float
    approval_seconds: float
    claim_seconds: float
    verify_seconds: float


class Lock(BaseModel):
    """What shadow mode has shown of a rule, and why that is not enough."""

    n: int = Field(description="Closed incidents that the rule would have acted upon.")
    precision: float = Field(
        description="The share of them in which that would have been right; 0 where there is none."
    )
    bound: float = Field(description="The lower end of Wilson's 95 % interval of it.")
    why: str | None = Field(description="Why it may not act by itself; null: it may.")


class RuleDocument(BaseModel):
    """What may be done by itself about one class of faults; null fits everything."""

    name: str
    mode: Mode
    kind: RemediationKind | None
    symptom: str | None
    fault_class: str | None
    job: str | None
    least_probability: float
    least_precision: float
    most_nodes: int
    lock: Lock | None = Field(None, description="null: the rule proposes only, or the text is not in force.")


class PolicyDocument(BaseModel):
    """The rules, of which the first that fits decides, and the limits."""

    rules: list[RuleDocument]
    limits: LimitsDocument


class PolicyInForce(PolicyDocument):
    """What is in force."""

    problem: str | None = Field(description="Why the file is not understood: then nothing acts by itself.")


class PolicyWish(Strict):
    """A policy as it would stand in its file."""

    text: Annotated[str, Field(max_length=MOST_BYTES, description="TOML.")]


class PolicyChecked(BaseModel):
    """Whether a text is a policy."""

    problem: str | None = Field(description="What is wrong, and where; null: nothing.")
    policy: PolicyDocument | None = Field(description="As it was understood.")


@router.get("/v1/policy", operation_id="get_policy", dependencies=[auth.READ], responses=documented())
def get_policy(request: Request) -> PolicyInForce:
    """Get the policy in force, and for each rule what shadow mode has shown of it."""
    service = of(request)
    book = service.remedies.book(now())
    shown = _document(book.policy, book.tallies)
    return PolicyInForce(rules=shown.rules, limits=shown.limits, problem=service.policy.problem)


@router.post("/v1/policy/check", operation_id="check_policy", dependencies=[auth.READ], responses=documented())
def check_policy(wish: PolicyWish) -> PolicyChecked:
    """Say what is wrong with a policy before it is put into its file. Nothing is changed."""
    try:
        return PolicyChecked(problem=None, policy=_document(parse_policy(wish.text)))
    except PolicyError as error:
        return PolicyChecked(problem=str(error), policy=None)


def _document(policy: Policy, tallies: dict[str, Tally] | None = None) -> PolicyDocument:
    return PolicyDocument(
        rules=[_rule(rule, None if tallies is None else tallies.get(rule.name, Tally())) for rule in policy.rules],
        limits=LimitsDocument.model_validate(msgspec.to_builtins(policy.limits)),
    )


def _rule(rule: Rule, tally: Tally | None) -> RuleDocument:
    shown = RuleDocument.model_validate(msgspec.to_builtins(rule))
    if tally is not None and rule.mode != "propose":
        precision = tally.right / tally.seen if tally.seen else 0.0
        shown.lock = Lock(n=tally.seen, precision=precision, bound=lower_bound(tally), why=explain_lock(rule, tally))
    return shown
