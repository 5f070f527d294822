"""The Slurm adapter against a real Slurm and a real service: what it does, what it leaves alone, what it takes back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.served import served
from tests.slurm import cluster
from tests.slurm.proposals import Shop

if reason := cluster.missing():
    pytest.skip(reason, allow_module_level=True)

ALL = ("gpu0", "gpu1", "gpu2")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Return a Slurm of four nodes and a service without an engine."""
    folder = tmp_path_factory.mktemp("slurm")
    with cluster.slurm(folder / "slurm") as slurm, served(folder / "service", engine=False) as client:
        yield Shop(slurm, client, folder)


@pytest.fixture
def shop(running: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Return them with no job and nothing drained."""
    monkeypatch.setenv("SLURM_CONF", running.slurm.variables["SLURM_CONF"])
    running.heard.notes.clear()
    yield running
    running.slurm.clear()


def test_the_node_is_drained_and_the_job_runs_on_the_others(shop: Shop) -> None:
    """An approved eviction ends with our reason on the node, and the job running without it within seconds."""
    number, job = shop.submit()
    id = shop.propose(job, ["gpu1"], ran_on=ALL)
    began = time.monotonic()
    shop.work()
    took = time.monotonic() - began

    state, reason = shop.slurm.node("gpu1")
    assert state == "drained"
    assert reason == f"faulthound inc-{id[4:]} {id}: rank 1 is stopped and the others wait"
    assert shop.slurm.job(number) == ("RUNNING", "gpu[0,2-3]")
    one = shop.one(id)
    assert one["status"] == "verifying"
    assert one["did"] == {"gpu1": "drained", f"job {number}": "runs on gpu[0,2-3]"}
    print(f"drained and running again after {took:.1f} s")
    assert took < 20
