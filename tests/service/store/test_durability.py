"""Nothing acknowledged is lost and nothing is there twice, whatever is killed: real agents' spools, the real service.

`python -m tests.acceptance.durability` plays these and every other scene with 64 agents and more than a hundred kills.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.durability.matrix import SCENES, STRONGEST, TEST, cannot, complaints

pytestmark = [pytest.mark.alone, pytest.mark.slow]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", STRONGEST)
def test_every_record_is_in_the_log_once(name: str, tmp_path: Path) -> None:
    """What the agents had spooled is in the log, each record once; what a bound dropped is reported to the record."""
    if reason := cannot(name):
        pytest.skip(reason)

    outcome = SCENES[name](tmp_path, TEST)

    assert complaints(name, outcome) == [], outcome.did
