"""The Slurm adapter against a real Slurm and a real service: what it does, what it leaves alone, what it takes back.

A job that has crashed is started again in test_slurm_loop.py; adapters that are killed, and commands that hang, are in
test_slurm_killed.py, with a Slurm that is pretended.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator

import pytest

from analyzers.remediation.messages import AddHold, Approve
from analyzers.remediation.types import Hold
from service.adapters.slurm import slurm_actions
from service.clock import now
from tests.support import command_line
from tests.support.served import served
from tests.support.slurm import cluster
from tests.support.slurm.proposals import Shop

if reason := cluster.missing():
    pytest.skip(reason, allow_module_level=True)

pytestmark = pytest.mark.alone
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
    monkeypatch.setattr(slurm_actions, "QUEUED_SECONDS", 1.0)
    running.clear()
    yield running
    running.slurm.clear()


def test_a_job_runs_on_without_the_node_and_it_can_be_undone(shop: Shop) -> None:
    """Nothing happens to a proposal; once approved the node has our reason and the job runs without it; undo resumes it."""
    number, job = shop.submit()
    id = shop.propose(job, ["gpu1"], ran_on=ALL, approve=False)
    shop.work()
    assert shop.slurm.node("gpu1") == ("allocated", "")

    shop.client.service.remedies.handle(Approve(id=id, by="ann"), now())
    began = time.monotonic()
    shop.work()
    print(f"drained and running again after {time.monotonic() - began:.1f} s")

    why = f"faulthound inc-{id[4:]} {id}: hang, stopped, 97% sure; rank 1 is stopped and the others wait"
    assert shop.slurm.node("gpu1") == ("drained", why)
    assert shop.slurm.job(number) == ("RUNNING", "gpu[0,2-3]")
    assert shop.one(id)["status"] == "verifying"
    assert shop.one(id)["did"] == {"gpu1": "drained", f"job {number}": "runs on gpu[0,2-3]"}

    shop.ask_undo(id)
    shop.work()
    assert shop.slurm.node("gpu1") == ("idle", "")
    assert shop.slurm.job(number) == ("RUNNING", "gpu[0,2-3]")  # what runs is left alone
    assert shop.one(id)["status"] == "undone"


def test_what_another_has_said_of_a_node_stays(shop: Shop) -> None:
    """A node that somebody drained keeps that reason, through the eviction and through its undo; the job leaves it anyway."""
    number, job = shop.submit()
    shop.slurm.run("scontrol", "update", "NodeName=gpu1", "State=DRAIN", "Reason=fan: ticket 4711")
    id = shop.propose(job, ["gpu1"], ran_on=ALL)
    shop.work()
    assert shop.slurm.node("gpu1") == ("drained", "fan: ticket 4711")
    assert shop.slurm.job(number) == ("RUNNING", "gpu[0,2-3]")
    assert shop.one(id)["did"]["gpu1"] == "left as it is: allocated+drain, reason of root: 'fan: ticket 4711'"

    shop.ask_undo(id)
    shop.work()
    assert shop.slurm.node("gpu1") == ("drained", "fan: ticket 4711")
    assert shop.one(id)["status"] == "undone"


def test_a_job_that_cannot_run_again_costs_no_node(shop: Shop) -> None:
    """Submitted with --no-requeue, asking for the node by name, or cancelled by its user: reported, and nothing is drained."""
    for option, reported in (("--no-requeue", "--no-requeue"), ("--nodelist=gpu1", "asks for gpu1 by name")):
        number, job = shop.submit(option, nodes=2)
        nodes = shop.nodes_of(number)
        id = shop.propose(job, ["gpu1"], ran_on=nodes)
        shop.work()
        assert shop.one(id)["status"] == "approved"  # nothing was begun: it is tried again in a while
        assert reported in shop.one(id)["because"]
        shop.slurm.run("scancel", number)
        shop.clear()
    id = shop.propose(job, ["gpu1"], ran_on=nodes)  # of the one that is cancelled now
    shop.work()
    assert "cancelled: there is nothing to restart" in shop.one(id)["because"]
    assert shop.slurm.job(number)[0] in ("CANCELLED", "COMPLETING")
    assert shop.slurm.node("gpu1")[1] == ""


def test_the_controller_is_restarted_in_the_middle(shop: Shop) -> None:
    """Between the drain and the requeue the controller is gone for seconds: the loop ends, and the job is restarted once."""
    number, job = shop.submit()
    id = shop.propose(job, ["gpu1"], ran_on=ALL)
    with shop.working():
        shop.slurm.wait("drain", 60, lambda: shop.slurm.node("gpu1")[1] != "")
        shop.slurm.stop_controller()
        time.sleep(3)
        shop.slurm.start_controller()
        shop.slurm.wait("completion", 120, lambda: shop.one(id)["status"] == "verifying")

    # It may have waited for nodes that the new controller has not heard yet, and was reported as queued.
    shop.slurm.wait("restart", 60, lambda: shop.slurm.job(number) == ("RUNNING", "gpu[0,2-3]"))
    assert shop.restarts(number) == 1


def test_a_held_node_is_left_alone(shop: Shop) -> None:
    """What a hold keeps from acting is not claimed, and so is what is another Slurm's, or nobody's work here: reported once."""
    number, job = shop.submit()
    held = shop.propose(job, ["gpu1"], ran_on=ALL)
    far = shop.propose(f"far-{number}", ["tpu7"], ran_on=["tpu7", "tpu8"])
    back = shop.propose(f"back-{number}", [], ran_on=["gpu3"], kind="rollback")
    probe = shop.propose(f"probe-{number}", ["gpu3"], ran_on=["gpu3"], kind="probe")
    replay = shop.propose(f"replay-{number}", [], ran_on=["gpu3"], kind="replay")
    hold = Hold(id=f"hold-{number}", by="ann", reason="burn-in", made_at=now(), until=now() + 60, node="gpu1")
    shop.client.service.remedies.handle(AddHold(hold=hold), now())
    shop.work(times=2)

    assert [shop.one(id)["status"] for id in (held, far, back, probe, replay)] == ["approved"] * 5
    assert shop.slurm.node("gpu1") == ("allocated", "")
    assert shop.restarts(number) == 0
    assert len(shop.heard.notes) == 4, shop.heard.notes  # each thing once
    assert f"{probe}: this adapter does no probe: it is left to others" in shop.heard.notes
    assert "this Slurm has no node tpu7: it is left to others" in " ".join(shop.heard.notes)


def test_other_actions(shop: Shop) -> None:
    """A drain after the job leaves the job alone; a restart takes no node; a job with a name of its own is found."""
    number, _ = shop.submit(name="slow", nodes=2)
    nodes = shop.nodes_of(number)
    id = shop.propose("my-own-name", [nodes[0]], ran_on=nodes, kind="drain_after_job")
    shop.work()
    assert shop.slurm.node(nodes[0])[0] == "draining"
    assert (shop.restarts(number), shop.one(id)["status"]) == (0, "verifying")

    time.sleep(2)  # ranks are seen some time after their job has begun, or it is not theirs
    id = shop.propose("my-name", [], ran_on=nodes, kind="restart_job")
    shop.work()
    assert shop.one(id)["status"] == "verifying"
    assert shop.restarts(number) == 1
    assert shop.slurm.job(number)[0] == "RUNNING"


def test_a_dry_run_prints_and_changes_nothing(shop: Shop) -> None:
    """The commands are printed as a shell would take them, and not one of them is run."""
    number, job = shop.submit()
    id = shop.propose(job, ["gpu1"], ran_on=ALL, why="rank 1 is stopped and so on")
    done = command_line.faulthound("adapter", "slurm", "--dry-run", "--service", shop.client.url)

    reported = f"Reason=faulthound inc-{id[4:]} {id}: hang, stopped, 97% sure; rank 1 is stopped and so on"
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        f"scontrol update NodeName=gpu1 State=DRAIN {shlex.quote(reported)}",
        f"scontrol requeue {number}",
        f"scontrol update JobId={number} StartTime=now ExcNodeList=gpu1",
    ]
    assert shop.slurm.node("gpu1") == ("allocated", "")
    assert shop.one(id)["status"] == "approved"


ROLES = """\
#!/bin/bash
#SBATCH --job-name={job} --nodes=1 --ntasks=1
{component}
again() {{ for _ in 1 2 3; do srun --overlap --nodes=1 --ntasks=1 --job-name="$@"; done; }}
again trainer {first} sleep 300 &
again rollout-0 {second} --relative=0 sleep 300 &
again rollout-1 {second} --relative={third} sleep 300 &
wait
"""
COMPONENTS = {
    "steps": {"component": "", "first": "", "second": "", "third": 0},
    "components": {
        "component": "#SBATCH hetjob\n#SBATCH --job-name=rollouts --nodes=2 --ntasks=2",
        "first": "--het-group=0", "second": "--het-group=1", "third": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("form", COMPONENTS)
def test_a_role_is_restarted_as_a_step_and_the_rest_goes_on(shop: Shop, form: str) -> None:
    """Its epoch is fenced, its step ended, the script begins another; other steps and the job stay as they are."""
    job = f"{form}{time.monotonic_ns()}"  # nobody holds its roles from before
    script = shop.folder / f"{job}.sh"
    script.write_text(ROLES.format(job=job, **COMPONENTS[form]))
    number = shop.slurm.submit(script, "--output=/dev/null")
    shop.slurm.wait("steps", 60.0, lambda: len(steps(shop)) == 3)
    before = steps(shop)
    for role, instance in (("trainer", "0"), ("rollout", "0"), ("rollout", "1")):
        known = {"role": role, "instance": instance, "process": f"{job}{role}{instance}"}
        assert shop.client.put(f"/v1/jobs/{job}/roles", json=known).status_code == 200
    asked = {"role": "rollout", "instance": "1", "reason": "it hangs"}
    id = shop.client.post(f"/v1/jobs/{job}/roles/restart", json=asked).json()["id"]
    shop.client.service.remedies.handle(Approve(id=id, by="ann"), now())

    shop.work()

    after = steps(shop)
    assert after["rollout-1"] != before["rollout-1"]
    assert {name: after[name] for name in ("trainer", "rollout-0")} == {
        name: before[name] for name in ("trainer", "rollout-0")
    }
    assert shop.one(id)["did"] == {"rollout 1": f"rollout-1 runs as step {after['rollout-1']}"}
    states = {one["instance"]: one["state"] for one in shop.client.get(f"/v1/jobs/{job}/roles").json()["items"]}
    assert states["1"] == "fenced"
    counts = shop.slurm.run("squeue", "-h", "-t", "all", "-j", number, "-O", "RestartCnt,State").split()
    assert set(counts) == {"0", "RUNNING"}  # of each component


def steps(shop: Shop) -> dict[str, str]:
    """Return the steps that run, by name."""
    lines = shop.slurm.run("squeue", "--noheader", "--all", "--steps", "--format", "%j|%i").splitlines()
    return {name: id for name, _, id in (line.partition("|") for line in lines) if not id.endswith(("batch", "extern"))}
