"""One verdict, three renderings: each must say who, why and what to do, and hurt nobody with what files contain."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from analyzers.model import verdict as document
from analyzers.model.topology import Topology
from analyzers.model.verdict import Action, Culprit, Verdict, to_json
from analyzers.model.window import Window
from analyzers.verdict.action import NOT_PROVEN
from service.reports import advice, history, story, text
from service.reports import html as report
from tests.support.sample_verdicts import hang, healthy, two_ranks, undecided

EVERY = (hang, two_ranks, undecided, healthy)
NOBODY_KNOWN = (Window.build([]), Topology())


def changed(verdict: Verdict, **fields: object) -> Verdict:
    """Return the verdict with some fields replaced."""
    return msgspec.structs.replace(verdict, **fields)


def test_text_leads_with_the_culprit() -> None:
    """The first line says who, what, since when and how sure, in words and as a number."""
    first = text.render(hang(), width=110).splitlines()[0]

    assert (
        first == "Node gpu-0413 (trainer rank 3304) hangs the job since 2026-11-21 03:14:07 UTC: almost certain (97 %)"
    )


def test_text_keeps_its_order() -> None:
    """Why comes before who waits, what was rejected, what is missing, what to do and what was seen."""
    lines = text.render(hang()).splitlines()
    titles = ["Why", "Who waits", "Rejected", "Missing", "What to do", "Seen"]

    assert [line for line in lines if line in titles] == titles
    assert "  7 → 15 → 3304   (each waits for the next)" in lines or any("7 → 15 → 3304" in line for line in lines)
    assert any("Evict node gpu-0413" in line for line in lines)
    assert any("1 file not read" in line for line in lines)


def test_several_ranks_of_one_root_are_one_sentence() -> None:
    """Two ranks that hang a job together are named together, in the plural."""
    assert text.render(two_ranks()).startswith("Ranks 9 and 14 hang the job")


@pytest.mark.parametrize(
    ("ranks", "held", "who"),
    [
        ((2,), 4, "Rank 2 (node vm) slows the job"),
        ((2, 3), 4, "Ranks 2-3 (node vm) slow the job"),
        ((0, 1), 2, "Node vm (ranks 0-1) slows the job"),
        ((2,), 1, "Node vm (rank 2) slows the job"),
        ((2,), None, "Node vm (rank 2) slows the job"),
    ],
)
def test_a_node_with_sound_ranks_does_not_slow_the_job(ranks: tuple[int, ...], held: int | None, who: str) -> None:
    """Its slow ranks do; a node of which every rank is slow, or of which no other is known, is the subject itself."""
    culprit = Culprit(root="r1", kind="node", id="vm", ranks=ranks, ranks_on_node=held, probability=0.87)
    verdict = changed(two_ranks(), symptom="slow", cause="machine", culprits=(culprit,))

    assert str(story.headlines(verdict)[0]).startswith(who)


def test_independent_roots_have_a_line_each() -> None:
    """Two roots are two headlines, each with its own probability."""
    first, second = two_ranks().culprits
    verdict = changed(two_ranks(), culprits=(first, msgspec.structs.replace(second, root="r2", probability=0.5)))

    assert [str(line).split(":")[-1] for line in story.headlines(verdict)] == [
        " very likely (90 %)",
        " possible (50 %)",
    ]
    assert history.of_verdict(verdict, 1, 0.0).sure == "90 %"
    assert history.of_verdict(two_ranks(), 1, 0.0).sure == f"{100 * min(first.probability, second.probability):.0f} %"


def test_a_crash_happened_at_a_time_and_a_hang_lasts_since_one() -> None:
    """What is over has an instant; what goes on has a beginning."""
    onset = "2026-11-21T03:14:07Z"
    lines = [
        str(story.headlines(changed(two_ranks(), symptom=symptom, onset=onset))[0]) for symptom in ("crash", "hang")
    ]

    assert [word for line in lines for word in ("at", "since") if f" {word} 2026-11-21 03:14:07 UTC" in line] == [
        "at",
        "since",
    ]


def test_many_roots_are_counted_and_not_all_shouted() -> None:
    """Beyond the bound on headlines the rest is a number; at the bound each has its line."""
    many = tuple(Culprit(root=f"r{n}", kind="rank", id=str(n), ranks=(n,), probability=0.9) for n in range(9))
    at_the_bound = text.render(changed(hang(), culprits=many[: text.MOST_ROOTS]))
    beyond = text.render(changed(hang(), culprits=many))

    assert at_the_bound.count("hangs the job") == beyond.count("hangs the job") == text.MOST_ROOTS
    assert "and 1 more" in beyond.split("Why")[0]
    assert "and 5 more, independent" in report.page(changed(hang(), culprits=many), *NOBODY_KNOWN)


def test_abstaining_names_nobody_and_says_what_to_collect() -> None:
    """An abstention says so first, orders nobody about, and ends in commands that can be run."""
    said = text.render(undecided())

    assert said.startswith("Nothing is named.")
    assert "py-spy dump" in said
    assert "faulthound diagnose DIR" in said
    assert "Evict" not in said
    assert "! stacks of ranks 12-15 would split them" in said


def test_a_set_is_told_as_one_or_more_of_its_ranks() -> None:
    """A set is called after its ranks once, and after its group where it has one; how many are guilty is left open."""
    loose = Culprit(root="r1", kind="group", id="ranks 9,14", ranks=(9, 14), probability=0.9)
    group = msgspec.structs.replace(loose, id="42 (PIPELINE)")

    assert story.name_culprits([loose]) == "One or more of ranks 9 and 14"
    assert story.name_culprits([group]) == "One or more of ranks 9 and 14 (group 42 (PIPELINE))"
    assert " hang the job" in text.render(changed(hang(), culprits=(loose,)))


def test_an_action_names_what_the_verdict_names() -> None:
    """Where neither node nor rank is known the object of the action is the culprit itself, as its log calls it."""
    link = Culprit(root="r1", kind="link", id="vm-0/ib6", probability=0.7, why="ib6 went down")
    verdict = changed(hang(), culprits=(link,), action=document.Action(kind="probe"))

    assert advice.what_to_do(verdict).startswith("Test link vm-0/ib6 before any eviction; ")
    assert story.reason(link.why, [link], named=False) == "ib6 went down."


def test_a_machine_in_doubt_is_tested_with_a_command() -> None:
    """The advice names a command, says how a hang is looked at again, and how the node of a rank becomes known."""
    on_rank = changed(hang(), action=document.Action(kind="probe", ranks=(2,), why=NOT_PROVEN))
    on_node = changed(on_rank, action=document.Action(kind="probe", nodes=("gpu-2",)), symptom="crash")
    network = changed(on_node, cause="network")

    assert advice.what_to_do(on_rank) == (
        "Test the node of rank 2 (for example `dcgmi diag -r 3`; `--hosts` names the node) before any eviction; "
        "while the job still hangs, dump the stacks again in a minute and diagnose both."
    )
    assert advice.what_to_do(on_node) == "Test node gpu-2 (for example `dcgmi diag -r 3`) before any eviction."
    assert (
        advice.what_to_do(network) == "Test node gpu-2 (for example nccl-tests' `all_reduce_perf`) before any eviction."
    )
    assert "probe" not in text.render(on_rank).lower()


def test_the_node_of_a_rank_is_named_where_it_is_known() -> None:
    """Where lines or a list of hosts show where the ranks ran, no list is asked for."""
    action = document.Action(kind="probe", ranks=(2,), nodes_of_ranks=("gpu-2",), why=NOT_PROVEN)
    placed = changed(hang(), action=action, symptom="crash")

    assert (
        advice.what_to_do(placed)
        == "Test the node of rank 2, gpu-2 (for example `dcgmi diag -r 3`) before any eviction."
    )


def test_where_agents_run_they_see_the_stacks_again() -> None:
    """The agents of a job dump its stacks in the next evidence round: the advice asks no person for it."""
    seen = document.Coverage(sources={"coverage": 2})
    verdict = changed(hang(), action=document.Action(kind="probe", ranks=(2,)), coverage=seen)

    assert advice.what_to_do(verdict) == "Test the node of rank 2 (for example `dcgmi diag -r 3`) before any eviction."


def test_stacks_of_no_rank_do_not_replace_stacks() -> None:
    """Stacks whose files name no rank decide nothing: py-spy stays in the advice, with names that have a rank."""
    loose = changed(undecided(), coverage=document.Coverage(sources={"flight_recorder": 4, "stacks_without_rank": 4}))
    said = " ".join(text.render(loose).split())

    assert "py-spy dump --json --nonblocking --pid PID > stacks_rankN.json" in said
    assert "4 stack dumps of no known rank" in said


def test_one_reason_rejects_several_in_one_line() -> None:
    """Those rejected for the same reason are listed together, others by themselves."""
    rejected = tuple(document.Rejected(kind="rank", id=str(n), why="it waits" if n else "it ran") for n in range(3))

    assert story.rejections(changed(hang(), rejected=rejected)) == (
        ("rank 0", "it ran"),
        ("ranks 1 and 2, each", "it waits"),
    )


def test_what_is_rejected_by_its_name_is_no_rank() -> None:
    """An instance of a role, or a node, stands by its name; numbers are ranks."""
    for ids, said in (
        (["rollout 2"], "rollout 2"), (["node-a"], "node-a"), (["rollout 2", "reward 0"], "rollout 2 and reward 0, each"),
        (["3-5"], "ranks 3-5"), (["3"], "rank 3"),
    ):  # fmt: skip
        rejected = tuple(document.Rejected(kind="rank", id=one, why="it waits") for one in ids)
        assert story.rejections(changed(hang(), rejected=rejected)) == ((said, "it waits"),)


def test_no_more_ranks_are_seen_than_the_job_has() -> None:
    """A job that states fewer ranks than are seen, as trainers do of a job with rollouts, states not all."""
    for expected, at_least, said in (
        (2, False, "8 ranks seen"), (8, False, "8 of 8 ranks seen"), (9, True, "8 of at least 9 ranks seen"),
        (8, True, "8 ranks seen"),
    ):  # fmt: skip
        seen = document.Coverage(ranks_seen=8, ranks_expected=expected, ranks_at_least=at_least)
        assert story.coverage(changed(hang(), coverage=seen)) == f"{said}."


def test_files_not_read_are_counted_beyond_those_listed() -> None:
    """The first are named with their reason; the number is that of all, though the document lists only some."""
    unread = (*(f"f{n}: empty" for n in range(20)), "80 more")
    said = text.render(changed(hang(), coverage=document.Coverage(unread=unread)))

    assert "100 files not read:" in said
    assert said.count(": empty") == text.MOST_UNREAD


def test_sources_of_agents_are_no_files() -> None:
    """What agents could not read is no file that `faulthound read` could open here."""
    unread = (
        *(f"a.fhz#{n}:recorder of rank {n % 4}: no answer" for n in range(12)),
        *(f"recorder of rank {n}: it answered {n} times" for n in range(4)),
    )
    said = text.render(changed(hang(), coverage=document.Coverage(unread=unread, sources={"coverage": 1, "stacks": 4})))

    assert "5 sources that gave nothing:" in said
    assert "- recorder of ranks 0-3: no answer" in said
    assert said.count("no answer") == 1  # in three evidence rounds
    assert "and 2 more" in said
    assert "faulthound read" not in said


def test_where_agents_run_they_are_asked() -> None:
    """A verdict from what agents sent leads to asking them, with a job's name that a shell takes as one word."""
    seen = document.Coverage(sources={"coverage": 2, "ring": 1, "command_result": 1})
    said = text.render(changed(undecided(), job="llama; reboot", coverage=seen))

    assert "faulthound jobs collect 'llama; reboot'\n" in said
    assert "py-spy dump" not in said
    assert "2 coverage reports of agents and 1 probe ring" in " ".join(said.split())


def test_abstaining_with_an_action_only_offers_it() -> None:
    """Where an abstaining verdict has an action, it is one way among others and not an order."""
    said = " ".join(text.render(changed(undecided(), action=document.Action(kind="probe", ranks=(12, 13)))).split())

    assert "If the job cannot wait for more evidence, one way is: test the nodes of ranks 12-13" in said


def test_what_several_nodes_show_is_told_as_such() -> None:
    """Where nothing is named of a fleet's incident, the nodes are what was seen, and nobody is sent to look at stacks."""
    verdict = changed(
        undecided(), job=None, symptom="unknown", first_symptom=document.FirstSymptom(text="11 nodes fell silent together"),
        suspects=(Culprit(root="r1", kind="unknown", id="unknown", probability=1.0),), culprits=(), victims=document.Victims(),
        action=document.Action(kind="none", why="somebody must look at what they share"),
        coverage=document.Coverage(sources={"agents": 22, "agents_affected": 11}),
    )  # fmt: skip
    said = text.render(verdict, width=110)

    assert said.startswith("Nothing is named. 11 nodes fell silent together, and the evidence does not decide why.\n")
    assert "Do not stop any process or job yet. Somebody must look at what they share.\n" in said
    assert "11 of 22 agents are affected." in said
    assert "  - Unknown, almost certain" in said
    assert not any(word in said for word in ("py-spy", "faulthound diagnose", "ranks seen"))


def test_healthy_says_so() -> None:
    """A healthy job gets one plain line and is left alone."""
    said = text.render(healthy())

    assert said.startswith("Healthy: ")
    assert "leave the job alone" in said
    assert "Why" not in said.splitlines()


def test_a_pause_is_said() -> None:
    """A job that waits for a checkpoint is reported as one whose pause is nobody's fault, and is not called healthy."""
    root = document.Root(root="r1", cause="none", fault_class="pause_checkpoint")
    said = text.render(changed(hang(), cause="none", culprits=(), roots=(root,), action=document.Action(kind="none")))

    assert said.startswith("No fault: the job is in a pause\n")
    assert "Evict no node." in said


@pytest.mark.parametrize("kind", ["code", "data", "library", "storage", "platform"])
def test_not_a_machine_is_said(kind: str) -> None:
    """What no eviction can cure is never reported as if it were a machine."""
    culprit = Culprit(root="r1", kind=kind, id=kind, ranks=(3,), probability=0.9)
    line = str(story.headlines(changed(hang(), culprits=(culprit,), action=document.Action(kind="reattempt")))[0])

    assert "not a machine" in line or kind == "platform"
    assert "ode gpu" not in line


@pytest.mark.parametrize(("ranks", "id", "whose"), [((3,), "rank 3", "rank 3"), ((3, 4), "rank 3-4", "ranks 3-4")])
def test_whose_code_it_is(ranks: tuple[int, ...], id: str, whose: str) -> None:
    """Code that is named by its ranks is theirs, in the headline and in the lines of versions; it is called so once."""
    culprit = Culprit(root="r1", kind="code", id=id, ranks=ranks, probability=0.9)
    verdict = changed(hang(), culprits=(culprit,), action=document.Action(kind="reattempt"))

    assert str(story.headlines(verdict)[0]).startswith(f"The code of {whose} (not a machine) ")
    assert history.of_verdict(verdict, 1, 0.0).named == f"code of {whose}"


@pytest.mark.parametrize("sample", EVERY)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_text_fits_its_width(sample: object, width: int) -> None:
    """No line is wider than the terminal, except a command, which must stay in one piece."""
    for line in text.render(sample(), width=width).splitlines():  # type: ignore[operator]
        assert len(line) <= max(40, min(width, text.WIDEST)) or line.startswith("    ")


@pytest.mark.parametrize("sample", EVERY)
def test_ascii_terminals_get_ascii(sample: object) -> None:
    """Without Unicode every character is ASCII, and an arrow is still an arrow."""
    said = text.render(sample(), unicode=False)  # type: ignore[operator]

    assert said.isascii()
    assert "?" not in said.replace("? ", "")
    if sample is hang:
        assert "7 -> 15 -> 3304" in said


def test_colour_only_where_it_is_wanted() -> None:
    """Without colour there is no escape character; with it, the words stay the same."""
    plain, colored = text.render(hang()), text.render(hang(), color=True)

    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


def test_a_file_cannot_steer_the_terminal() -> None:
    """Escape and direction characters in foreign text reach no terminal."""
    evil = "\x1b]0;owned\x07\x9b31m\u202e"
    verdict = changed(hang(), evidence=(document.EvidenceItem(id="e1", text=evil, source=evil),))

    for color in (False, True):
        said = re.sub(r"\x1b\[[0-9;]*m", "", text.render(verdict, color=color))
        assert not set(said) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_the_document_has_every_field_always() -> None:
    """Even an empty verdict shows all fields, so that a reader needs no defaults; equal verdicts are equal bytes."""
    reported = json.loads(to_json(healthy()))

    assert set(reported) == set(Verdict.__struct_fields__)
    assert to_json(hang()) == to_json(hang())


def stopped() -> Verdict:
    """One rank of one node, whose process is stopped."""
    return changed(hang(), roots=(msgspec.structs.replace(hang().roots[0], fault_class="stopped"),))


def test_a_stopped_process_is_continued_by_hand() -> None:
    """Where a process is stopped, the report says how that is looked at and ended; beside a plan too, never elsewhere."""
    planned = ("reattempt", "Start llama-405b again as it is (rem-1, proposed).")
    reports = [text.render(one, plan=how) for one, how in ((stopped(), None), (stopped(), planned), (hang(), None))]

    assert ["`kill -CONT PID`" in " ".join(said.split()) for said in reports] == [True, True, False]
    assert "kill -CONT PID" in report.page(stopped(), *NOBODY_KNOWN)


def test_a_plan_is_the_one_answer() -> None:
    """What the verdict by itself advises does not stand beside it; how a check is done does."""
    other = " ".join(text.render(hang(), plan=("reattempt", "Start it again.")).split())
    same = " ".join(text.render(hang(), plan=("evict", "Drain gpu-0413.")).split())

    assert ["Evict node gpu-0413." in said for said in (other, same)] == [False, False]
    probed = changed(hang(), action=Action(kind="probe", nodes=("gpu-0413",), why=""))
    assert "dcgmi" in text.render(probed, plan=("probe", "Check gpu-0413, and evict nothing."))
