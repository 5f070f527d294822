"""A sample of the liar matrix: one agent, or one user, that lies about a job's innocent rank hurts nobody and changes nothing.

The whole matrix is ``tests/acceptance/lies.py``.
"""

from __future__ import annotations

import pytest

from tests.attacks.liars import SCENES, VOICES, matrix, run_one
from tests.attacks.lies import A_USER, LIES

SEED = 0
SAMPLE = [
    ("killed_and_ras", "bound", "healthy"),
    ("killed_without_a_node", "unbound", "spin"),
    ("moved_and_killed", "user", "healthy"),
    ("ras_dead_host", "user", "data_loader"),
    ("everybodys_recorder", "bound", "sigstop"),
    ("a_whole_job", "user", "spin"),
    ("a_later_attempt", "unbound", "killed"),
    ("one_rank_more", "bound", "healthy"),
    ("everybodys_place", "bound", "exception"),
    ("cuda_error", "user", "healthy"),
    ("its_gpu_is_lost", "bound", "dead_node"),
    ("of_another_role", "unbound", "gpu_lost"),
    ("it_steps_in_the_future", "bound", "spin"),
    ("dated_ahead", "bound", "data_loader"),
    ("ras_dead_host", "colluders", "killed"),
    ("a_nameless_one_was_killed", "bound", "spin"),
    ("a_nameless_one_stops", "user", "healthy"),
    ("a_nameless_one_falls_silent", "bound", "killed"),
    ("a_rollout_was_killed", "unbound", "sigstop"),
    ("a_rollout_stops", "user", "gpu_lost"),
    ("a_numbered_rollout_was_killed", "bound", "exception"),
    ("in_a_dead_ranks_place", "unbound", "killed"),
    ("named_by_a_detector", "user", "healthy"),
    ("its_processor_time_grew", "bound", "slower"),
]


@pytest.mark.parametrize(("name", "voice", "kind"), SAMPLE)
def test_a_lie_hurts_nobody(name: str, voice: str, kind: str) -> None:
    """No innocent node is proposed for replacement, and the verdict on the job is what it is without the liar."""
    row = run_one(name, voice, kind, SEED)

    assert row["taken"] + row["refused"] > 0
    assert row["innocent"] == []
    assert not row["changed"], row


def test_a_rank_that_is_claimed_after_the_end_makes_no_verdict_bolder() -> None:
    """A second incident of the same run reads the same end again: it stays one piece of evidence."""
    row = run_one("stopped", "unbound", "killed", 9300)

    assert not row["changed"], row


INSIDE = [
    ("dated_ahead", "insider", "sigstop"),
    ("its_place_on_no_node", "insider", "sigstop"),
    ("all_others_killed", "insider", "spin"),
    ("its_place", "insider", "spin"),
    ("preempted", "insider", "data_loader"),
    ("everything_at_once", "insider", "healthy"),
    ("one_rank_more", "insider", "healthy"),
    ("of_another_role", "insider", "sigstop"),
    ("ras_dead_host", "insider", "killed"),
    ("named_by_a_detector", "insider", "healthy"),
    ("trainers_wait_for_it", "insider", "healthy"),
    ("it_is_behind", "insider", "sigstop"),
]


@pytest.mark.parametrize(("name", "voice", "kind"), INSIDE)
def test_a_host_of_the_job_names_no_other(name: str, voice: str, kind: str) -> None:
    """It can have itself named, or hide what is wrong: no innocent third node is named in any verdict, or proposed."""
    row = run_one(name, voice, kind, SEED)

    assert row["taken"] > 0
    assert (row["innocent"], row["third"]) == ([], [])


def test_a_host_claims_no_rank_of_others_by_words_of_no_attempt() -> None:
    """One of a job's nodes says that it runs another's rank, of no attempt, and that it was killed: no third is named."""
    row = run_one("of_no_attempt", "insider", "sigstop", 77)

    assert (row["innocent"], row["third"], row["grouped"]) == ([], [], [])


@pytest.mark.parametrize(
    ("name", "kind"), [("a_whole_job", "dead_node"), ("a_whole_job", "spin"), ("everybodys_recorder", "dead_node")]
)
def test_a_host_has_its_own_group_named_and_nobody_taken_out(name: str, kind: str) -> None:
    """By its own ranks' recorders all have launched: which rank of the group stands no dump can tell, and none is replaced."""
    row = run_one(name, "insider", kind, 77)

    assert row["grouped"]
    assert (row["innocent"], row["third"]) == ([], [])


@pytest.mark.parametrize("name", ["ras_lagging_rank", "lost_connections", "never_at_the_barrier"])
def test_most_hosts_of_a_job_have_no_other_replaced(name: str) -> None:
    """Two of three that agree can have the third named, to be looked at: it is not proposed for replacement."""
    rows = [run_one(name, "colluders", kind, SEED) for kind in ("killed", "sigstop")]

    assert [row["innocent"] for row in rows] == [[], []]


def test_the_matrix_is_as_large_as_it_claims() -> None:
    """Ninety lies and more, nine scenes, three voices; a user cannot tell those that need a token."""
    rows = list(matrix([SEED]))

    assert len(LIES) >= 90
    assert (len(SCENES), len(VOICES)) == (9, 3)
    assert len(rows) == 9 * (2 * len(LIES) + len(A_USER))
