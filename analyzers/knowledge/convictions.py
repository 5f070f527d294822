"""The rows of ``conviction.toml``, checked: whether they can be meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec.structs import fields, replace

from analyzers.knowledge import Knowledge
from analyzers.knowledge.typed import KnowledgeRowError, typed

Probability = Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]


class Likelihoods(msgspec.Struct, frozen=True, kw_only=True):
    """How often one thing is seen of a faulty machine, and of a healthy one."""

    faulty: Probability
    healthy: Probability


class BurnIn(Likelihoods, frozen=True, kw_only=True):
    """A failure under load, and what else ends a burn-in."""

    hours: Positive
    acquitted_below: Probability


class Prior(msgspec.Struct, frozen=True, kw_only=True):
    """What is believed of a node that nothing is known of, and the most that a verdict is believed."""

    faulty: Probability
    most_named: Probability


class RestartOdds(msgspec.Struct, frozen=True, kw_only=True):
    """What a restart shows of the cause by itself: some jobs fail again the same way though their fault has left."""

    relapses: Probability


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """How fast evidence fades, and how many times it changes the odds of a new verdict at most."""

    half_life_days: Positive
    most: Annotated[float, msgspec.Meta(ge=1.0)]


class Offender(msgspec.Struct, frozen=True, kw_only=True):
    """How many evictions in how many days make a repeat offender."""

    evictions: Annotated[int, msgspec.Meta(ge=1)]
    days: Positive


class PriorRate(msgspec.Struct, frozen=True, kw_only=True):
    """What is believed of the rate of failures before the fleet has a history: so many in so many node-days."""

    failures: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    node_days: Positive


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """After how long an attempt was well, how many network alerts in how long act, how long a standstill may pass."""

    settled_seconds: Positive
    network_alerts: Annotated[int, msgspec.Meta(ge=1)]
    network_seconds: Positive
    standing_seconds: Positive


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of conviction.toml."""

    prior: Prior
    restart: RestartOdds
    recurrence: Likelihoods
    probe: Likelihoods
    burn_in: BurnIn
    memory: Memory
    offender: Offender
    rate: PriorRate
    ladder: Ladder
    cures: float = 0.0  # the share of faults that a plain restart cures: of plan.toml


class _Plan(msgspec.Struct):
    cures: dict[str, Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]]


def weights(knowledge: Knowledge) -> Weights:
    """Return how evidence weighs; raise KnowledgeRowError where a faulty machine would look better than a healthy one."""
    found = replace(typed(knowledge, "conviction", Weights), cures=typed(knowledge, "plan", _Plan).cures["*"])
    for name, sign in (("recurrence", found.recurrence), ("probe", found.probe), ("burn_in", found.burn_in)):
        if sign.faulty <= sign.healthy:
            raise KnowledgeRowError(
                f"knowledge conviction.toml: [{name}] faulty = {sign.faulty} is not above healthy = {sign.healthy}: "
                "it is to be seen of faulty machines more often"
            )
    if found.restart.relapses >= 1.0 - found.cures:
        raise KnowledgeRowError(
            f"knowledge conviction.toml: [restart] relapses = {found.restart.relapses} is not below {1 - found.cures:.3f}, "
            "the share that a plain restart does not cure (plan.toml): a job whose fault has left fails less often"
        )
    return found


def problems(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is unusable in a site's document: the thing, its value, and what it must be."""
    tables = {field.name: field.type for field in fields(Weights) if field.name != "cures"}
    for name, rows in document.items():
        if name not in tables:
            if name not in ("source", "date", "meta"):
                yield f"{name}: there is no such table; there are {', '.join(tables)}"
        elif not isinstance(rows, Mapping):
            yield f"{name}: must be a table"
        else:
            yield from _problems_of(name, rows, {field.name: field.type for field in fields(tables[name])})


def _problems_of(name: str, rows: Mapping[str, Any], types: Mapping[str, Any]) -> Iterator[str]:
    for key, value in rows.items():
        if key not in types:
            yield f"{name}.{key}: there is no such row; there are {', '.join(types)}"
            continue
        try:
            msgspec.convert(value, types[key])
        except msgspec.ValidationError as problem:
            yield f"{name}.{key} = {value!r}: {problem}"
