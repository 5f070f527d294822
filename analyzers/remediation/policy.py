"""What may be done automatically, by class of fault: a TOML file, read by a pure function.

[limits]
evictions_an_hour = 4

[[rules]]
name = "stopped-process"
symptom = "hang"
fault_class = "stopped"
kind = "evict"
least_probability = 0.9
mode = "shadow"            # propose | shadow | automatic
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from analyzers.remediation.types import Limits, Policy, Remediation, Rule, Tally

POLICY = "policy"
LEAST_SHADOWED = 20  # closed incidents of a rule, before it may act by itself
MOST_BYTES = 1 << 20
MOST_RULES = 256
CONFIDENCE_Z = 1.959964  # of a two-sided 95 % interval
PROPOSE = Rule(name="")
"""Where no rule fits."""


class PolicyError(ValueError):
    """The text is no policy; the message names the place, and what to write."""


def parse_policy(text: str) -> Policy:
    """Return the policy that a TOML text states; raise ``PolicyError``."""
    if len(text) > MOST_BYTES:
        raise PolicyError(f"the policy has {len(text):,} characters, more than {MOST_BYTES:,}: it is no policy")
    try:
        policy = msgspec.convert(tomllib.loads(text), Policy)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"the policy is no TOML: {error}") from None
    except RecursionError:
        raise PolicyError("the policy is nested too deeply: it is a list of flat rules") from None
    except msgspec.ValidationError as error:
        raise PolicyError(f"{error}: `faulthound policy check --help` shows a policy") from None
    if problems := _problems(policy):
        raise PolicyError("; ".join(problems))
    return policy


def rule_for(policy: Policy, remediation: Remediation) -> Rule:
    """Return the first rule that fits."""
    return next((rule for rule in policy.rules if _fits(rule, remediation)), PROPOSE)


def explain_lock(rule: Rule, tally: Tally) -> str | None:
    """Say why an automatic rule must not act yet; None: shadow mode has shown that it may.

    A rule for checks alone is never locked: checks touch no job.
    """
    if rule.kind == "probe":
        return None
    if tally.seen < LEAST_SHADOWED:
        return f"rule {rule.name}: {tally.seen} closed incidents were seen in shadow mode, {LEAST_SHADOWED} are needed"
    bound = lower_bound(tally)
    if bound < rule.least_precision:
        shown = f"{tally.right} of {tally.seen} were right, which is at least {bound:.1%} (95 %)"
        return f"rule {rule.name}: {shown}, less than its {rule.least_precision:.1%}"
    return None


def approver(rule: str) -> str:
    """Return the approver's name for a rule."""
    return f"{POLICY} {rule}"


def is_by_rule(one: Remediation) -> bool:
    """Whether a rule and not a person has approved it."""
    return bool(one.rule) and one.approved_by == approver(one.rule)


def explain_revoked(policy: Policy, tallies: Mapping[str, Tally], one: Remediation) -> str | None:
    """Say why the rule that has approved it would not do so now; None: it would, or a person has approved it."""
    if not is_by_rule(one):
        return None
    rule = rule_for(policy, one)
    if rule.name != one.rule:
        return f"rule {one.rule}, which approved it, does not decide about it any more"
    if rule.mode != "automatic":
        return f"rule {one.rule}, which approved it, is in mode {rule.mode} now"
    return explain_lock(rule, tallies.get(rule.name, Tally()))


def lower_bound(tally: Tally) -> float:
    """Return the lower end of Wilson's 95 % interval of the precision."""
    n, share, z = tally.seen, tally.right / max(1, tally.seen), CONFIDENCE_Z
    if not n:
        return 0.0
    centre = share + z * z / (2 * n)
    spread = z * math.sqrt((share * (1 - share) + z * z / (4 * n)) / n)
    return max(0.0, (centre - spread) / (1 + z * z / n))


def _fits(rule: Rule, remediation: Remediation) -> bool:
    return (
        rule.kind in (None, remediation.kind)
        and rule.symptom in (None, remediation.symptom)
        and rule.fault_class in (None, remediation.fault_class)
        and (rule.job is None or fnmatchcase(remediation.job, rule.job))
        and remediation.probability >= rule.least_probability
        # A rule that proposes fits any number of nodes: else a plan of two nodes would reach a bolder rule.
        and (rule.mode == "propose" or len(remediation.nodes) <= rule.most_nodes)
    )


def _problems(policy: Policy) -> list[str]:
    names = [rule.name for rule in policy.rules]
    problems = [
        f"rule {name!a} is there twice: name each otherwise" for name in sorted(set(names)) if names.count(name) > 1
    ]
    if len(names) > MOST_RULES:
        problems.append(f"{len(names)} rules, more than {MOST_RULES}")
    for rule in policy.rules:
        problems += _problems_of(rule)
    return problems + _problems_of_limits(policy.limits)


def _problems_of(rule: Rule) -> list[str]:
    problems = [
        f"rule {rule.name}: {name} is {value}, and lies between 0 and 1"
        for name, value in (("least_probability", rule.least_probability), ("least_precision", rule.least_precision))
        if not 0.0 <= value <= 1.0
    ]
    if not rule.name or len(rule.name) > 64 or not rule.name.isprintable():
        problems.append(f"rule name {rule.name[:64]!a}: 1 to 64 printable characters")
    if rule.most_nodes < 0:
        problems.append(f"rule {rule.name}: most_nodes is {rule.most_nodes}, and is at least 0")
    if rule.mode == "automatic" and rule.least_precision < 0.5:
        problems.append(f"rule {rule.name}: an automatic rule needs a least_precision of 0.5 at least")
    return problems


def _problems_of_limits(limits: Limits) -> list[str]:
    problems = []
    if not 0.0 < limits.breaker_share <= 1.0:
        problems.append(f"limits: breaker_share is {limits.breaker_share}, and lies between 0 and 1")
    for name, value in msgspec.structs.asdict(limits).items():
        if name != "breaker_share" and not 0 <= value <= 1e9:
            problems.append(f"limits: {name} is {value}, and is not negative")
    return problems
