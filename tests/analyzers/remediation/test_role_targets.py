"""Which instances of a role a verdict is about: by their own names, by their machine, and never by another process's number."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from analyzers.model.verdict import Action, Culprit, Verdict
from analyzers.remediation.role_restart import role_options
from tests.analyzers.remediation.test_role_restart import FACTS, instance, judged, plan


def test_instances_are_known_by_their_own_names_too() -> None:
    """Not each is called by a number: of three rollouts, the two that the verdict names are restarted."""
    more = tuple(instance("rollout", name, "r9") for name in ("blue", "green", "red"))
    verdict = judged("rollout", 7, "r9")
    named = replace(verdict.culprits[0], instances=("blue", "red"), kind="rank", id="7")
    chosen = plan(replace(verdict, culprits=(named,)), replace(FACTS, instances=(*FACTS.instances, *more)))
    assert chosen.restart and (chosen.restart.instance, chosen.restart.epochs) == (None, {"blue": 5, "red": 5})  # noqa: PT018


@pytest.mark.parametrize("lost", [(), ("red",), ("blue", "red")])
def test_of_several_on_a_node_those_whose_leases_are_over_are_restarted(lost: tuple[str, ...]) -> None:
    """The process's number is its place on the node and no instance's name: none that serves is ended for it."""
    more = (instance("rollout", one, "r9", state="lost" if one in lost else "serving") for one in ("blue", "red"))
    chosen = plan(judged("rollout", 1 << 21, "r9"), replace(FACTS, instances=(*FACTS.instances, *more)))
    assert tuple(chosen.restart.epochs if chosen.restart else ()) == lost


@pytest.mark.parametrize(("state", "restarted"), [("serving", ()), ("lost", ("1",))])
def test_an_instance_with_the_number_of_a_rank_elsewhere_is_not_restarted(
    state: Literal["serving", "lost"], restarted: tuple[str, ...]
) -> None:
    """Where ranks count through the whole job, rank 3 is rollout 1 on r1: rollout 3 serves on. So may rollout 1, elsewhere."""
    known = tuple(replace(one, state=state) if one.instance == "1" else one for one in FACTS.instances)
    chosen = plan(judged("rollout", 3, "r1"), replace(FACTS, instances=known))
    assert tuple(chosen.restart.epochs if chosen.restart else ()) == restarted


def test_the_restart_of_a_whole_role_leaves_out_what_has_left_it() -> None:
    """A rollout that was fenced for good is one that its owner took away; a fenced trainer may be half restarted."""
    gone: dict[tuple[str, str], Literal["left", "fenced"]] = {
        ("rollout", "1"): "left", ("rollout", "3"): "fenced", ("trainer", "1"): "fenced",
    }  # fmt: skip
    facts = replace(
        FACTS,
        instances=tuple(replace(one, state=gone.get((one.role, one.instance), one.state)) for one in FACTS.instances),
    )
    for role, restarted in (("rollout", {"0", "2"}), ("trainer", {"0", "1"})):
        asked = Verdict(
            symptom="unknown", cause="unknown", abstained=False, culprits=(Culprit(root="r1", kind="role", id=role),),
            action=Action(kind="restart_role", role=role),
        )  # fmt: skip
        (option,) = role_options(asked, facts)
        assert set(option.restart.epochs) == restarted
