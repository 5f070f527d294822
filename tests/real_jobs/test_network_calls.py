"""A real job in which one rank asks a stopped server: the verdict names the server, and evicts nothing.

One trial of the matrix of `python -m tests.acceptance.network_calls`.
"""

from __future__ import annotations

import os

import pytest

from tests.support.jobs import network
from tests.support.needs import needs_torch

needs_torch("real jobs cannot be started")


@pytest.mark.system
@pytest.mark.acceptance
@pytest.mark.timeout(420)
@pytest.mark.skipif(os.geteuid() != 0, reason="agents read other users' processes as root")
def test_the_server_is_named_and_no_machine() -> None:
    """Both verdicts acquit the rank that waits; the control, which names the rank in no collective, names it."""
    with network.asking() as job:
        for number, (where, client) in enumerate(((network.STOPPED, "urlopen"), (network.UNSEEN, "raw socket"))):
            outcome = job.run(network.Trial(number, number + 1, client, where))

            assert not network.wrong(outcome)
            assert outcome.control == [number + 1]
