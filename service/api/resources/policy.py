"""The policy in force, and what shadow mode has shown of each of its rules. It is changed in its file."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Request
from pydantic import Field

from analyzers.model.doc import doc
from analyzers.remediation.policy import MOST_BYTES, PolicyError, explain_lock, lower_bound, parse_policy
from analyzers.remediation.types import Limits, Policy, Rule, Tally
from service.api import auth, fields
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now

router = Router("policy")


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """What shadow mode has shown of a rule, and why that is not enough."""

    n: Annotated[int, doc("Closed incidents that the rule would have acted on.")]
    precision: Annotated[float, doc("The share of them in which that would have been right; 0 where there is none.")]
    bound: Annotated[float, doc("The lower end of Wilson's 95 % interval of it.")]
    why: Annotated[str | None, doc("Why it may not act automatically; null: it may.")]


class RuleDocument(Rule, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What may be done automatically about one class of faults. A condition that is null fits everything."""

    lock: Annotated[Lock | None, doc("null: the rule proposes only, or the text is not in force.")] = None


class PolicyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The rules and the limits."""

    rules: Annotated[tuple[RuleDocument, ...], doc("The rules: the first that fits decides.")]
    limits: Annotated[Limits, doc("The limits.")]


class PolicyInForce(PolicyDocument, frozen=True, kw_only=True):
    """The policy in force."""

    problem: Annotated[str | None, doc("What is wrong with the file: nothing acts automatically; null: nothing.")]


class PolicyRequest(fields.Body):
    """A policy as it would stand in its file."""

    text: str = Field(max_length=MOST_BYTES, description="TOML.")


class PolicyChecked(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a text is a policy."""

    problem: Annotated[str | None, doc("What is wrong, and where; null: nothing.")]
    policy: Annotated[PolicyDocument | None, doc("The policy as it was read; null: the text is none.")]


@router.get("/v1/policy", dependencies=[auth.READ])
def get_policy(request: Request) -> PolicyInForce:
    """Get the policy in force, and for each rule what shadow mode has shown of it."""
    service = service_of(request)
    book = service.remedies.state(now())
    shown = msgspec.structs.asdict(_document(book.policy, book.tallies))
    return PolicyInForce(**shown, problem=service.policy.problem)


@router.post("/v1/policy/check", dependencies=[auth.READ])
def check_policy(asked: PolicyRequest) -> PolicyChecked:
    """Return what is wrong with a policy before it is put into its file. Nothing is changed."""
    try:
        return PolicyChecked(problem=None, policy=_document(parse_policy(asked.text)))
    except PolicyError as error:
        return PolicyChecked(problem=str(error), policy=None)


def _document(policy: Policy, tallies: dict[str, Tally] | None = None) -> PolicyDocument:
    rules = (_rule(rule, None if tallies is None else tallies.get(rule.name, Tally())) for rule in policy.rules)
    return PolicyDocument(rules=tuple(rules), limits=policy.limits)


def _rule(rule: Rule, tally: Tally | None) -> RuleDocument:
    lock = None
    if tally is not None and rule.mode != "propose":
        precision = tally.right / tally.seen if tally.seen else 0.0
        lock = Lock(n=tally.seen, precision=precision, bound=lower_bound(tally), why=explain_lock(rule, tally))
    return RuleDocument(**msgspec.structs.asdict(rule), lock=lock)
