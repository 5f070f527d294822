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
]


@pytest.mark.parametrize(("name", "voice", "kind"), SAMPLE)
def test_a_lie_hurts_nobody(name: str, voice: str, kind: str) -> None:
    """No innocent node is proposed for replacement, and the verdict on the job is what it is without the liar."""
    row = run_one(name, voice, kind, SEED)

    assert row["taken"] + row["refused"] > 0
    assert row["innocent"] == []
    assert not row["changed"], row


def test_the_matrix_is_as_large_as_it_claims() -> None:
    """Forty lies and more, eight scenes, three voices; a user cannot tell those that need a token."""
    rows = list(matrix([SEED]))

    assert len(LIES) >= 40
    assert (len(SCENES), len(VOICES)) == (8, 3)
    assert len(rows) == 8 * (2 * len(LIES) + len(A_USER))
