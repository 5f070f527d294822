"""Roles as steps of a Slurm that is pretended: which step is an instance's, what is ended, and when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from service.adapters.scheduler import CommandRefused, NotHere, RoleWork, WorkFailed
from service.adapters.slurm import slurm_output
from service.adapters.slurm.slurm_output import SlurmJob, SlurmStep
from service.adapters.slurm.slurm_roles import SlurmRoles

CLOCK, SERVICE = 5_000.0, 1_700_000_000.0  # of Slurm, of the service: an hour after the steps began
HET = (
    SlurmJob(number="1", state="RUNNING", name="rl", nodes=("gpu0",)),
    SlurmJob(number="2", state="RUNNING", name="rollouts", nodes=("gpu1", "gpu2")),
)


def step(id: str, name: str, node: str, age: float = 3_600.0) -> SlurmStep:
    """Return a step that has run for so long."""
    return SlurmStep(id=id, name=name, nodes=(node,), started_at=CLOCK - age)


STEPS = (step("1.0", "trainer", "gpu0"), step("2.1", "rollout-0", "gpu1"), step("2.2", "rollout-1", "gpu2"))


class Cluster:
    """One heterogeneous job, whose script begins a step again under the next number."""

    def __init__(self, *steps: SlurmStep, again: bool = True, jobs: Sequence[SlurmJob] = HET) -> None:
        self.now, self.again, self.known = {one.id: one for one in steps}, again, list(jobs)
        self.ended = list[str]()

    def parts(self, number: str) -> list[SlurmJob]:
        """Return all components."""
        return self.known if any(one.number == number for one in self.known) else []

    def job(self, number: str) -> SlurmJob | None:
        """Return a component."""
        return next((one for one in self.known if one.number == number), None)

    def jobs_named(self, name: str) -> list[SlurmJob]:
        """Return the jobs of a name."""
        return [one for one in self.known if one.name == name]

    def steps(self, numbers: Sequence[str]) -> list[SlurmStep]:
        """Return the steps of these jobs."""
        return [one for one in self.now.values() if one.job in numbers]

    def clock(self) -> float:
        """Return Slurm's own time."""
        return CLOCK

    def change(self, command: list[str]) -> None:
        """End a step."""
        assert command[0] == "scancel"
        if command[1] not in self.now:
            raise CommandRefused("Invalid job id")
        old = self.now.pop(command[1])
        self.ended.append(old.id)
        if self.again:
            self.now["2.9"] = replace(old, id="2.9", started_at=CLOCK)


class Service:
    """A service that knows these instances, each on a node."""

    def __init__(self, *items: tuple[str, str, str]) -> None:
        self.items = [
            {"role": role, "instance": instance, "epoch": 7, "node": node, "state": "serving"}
            for role, instance, node in items
        ]

    def find(self, _path: str) -> dict[str, Any]:
        """Return the directory."""
        return {"items": self.items}

    def get(self, _path: str) -> dict[str, Any]:
        """Return its time: the restart was proposed a minute ago."""
        return {"at": SERVICE + 60.0}


SEATS = (("trainer", "0", "gpu0"), ("rollout", "0", "gpu1"), ("rollout", "1", "gpu2"))


def work(*instances: str, role: str = "rollout", **more: Any) -> RoleWork:
    """Return the restart of these instances."""
    plan = {"epochs": dict.fromkeys(instances, 7), "instance": None, "leaves": [], "gives": [], "onto": {}}
    found = {"id": "rem-1", "job": "rl", "role": role, "proposed_at": SERVICE, "began_at": None, **more}
    return RoleWork.of(found | {"role_restart": plan | more.get("plan", {})})


def roles(cluster: Cluster, *seats: tuple[str, str, str]) -> SlurmRoles:
    """Return the adapter's side of it."""
    return SlurmRoles(cluster, Service(*(seats or SEATS)))  # type: ignore[arg-type]


def restart(cluster: Cluster, asked: RoleWork, *seats: tuple[str, str, str]) -> Any:
    """Return the restart of what was found."""
    ours = roles(cluster, *seats)
    assert ours.find_role(asked).problem is None
    return ours.restart_role(asked, lambda: None)


def test_the_step_of_an_instance_is_ended_and_the_rest_goes_on() -> None:
    """Once; it is done when the script has begun another of that name, in whichever component."""
    cluster = Cluster(*STEPS)
    again = restart(cluster, work("1"))
    assert (again(), cluster.ended) == (None, ["2.2"])
    assert again() == "rollout-1 runs as step 2.9"
    assert sorted(cluster.now) == ["1.0", "2.1", "2.9"]
    assert roles(cluster).role_commands(work("0")) == [["scancel", "2.1"]]


def test_a_script_that_starts_nothing_anew_is_said() -> None:
    """The step stays away: the loop gives up with that; with the job it is over at once."""
    cluster = Cluster(*STEPS, again=False)
    again = restart(cluster, work("1"))
    assert (again(), again()) == (None, None)
    assert again.refusal == "no step rollout-1 has begun again: the job's script has to start it anew"
    cluster.known = [replace(one, state="COMPLETED") for one in HET]
    with pytest.raises(WorkFailed, match="has ended with it"):
        again()


def test_what_another_process_of_ours_has_restarted_is_not_ended_again() -> None:
    """It was killed after the end of the step: the new one, which began after the proposal, is what was wanted."""
    began = {"began_at": SERVICE + 10.0}
    cluster = Cluster(*STEPS[:2], step("2.5", "rollout-1", "gpu2", age=5.0))
    assert restart(cluster, work("1", **began))() == "rollout-1 runs as step 2.5"
    between = Cluster(*STEPS[:2])
    again = restart(between, work("1", **began))
    assert again() is None
    between.now["2.6"] = step("2.6", "rollout-1", "gpu2", age=0.0)
    assert again() == "rollout-1 runs as step 2.6"
    assert (cluster.ended, between.ended) == ([], [])


def test_a_group_is_one_step() -> None:
    """Both trainers run in one srun: it is ended once. Steps of one name are distinguished by the instance's node."""
    seats = (("trainer", "0", "gpu0"), ("trainer", "1", "gpu0"), ("rollout", "0", "gpu1"), ("rollout", "1", "gpu2.lan"))
    cluster = Cluster(STEPS[0], step("2.1", "rollout", "gpu1"), step("2.2", "rollout", "gpu2"))
    assert restart(cluster, work("0", "1", role="trainer"), *seats)() is None
    assert cluster.ended == ["1.0"]
    other = Cluster(step("2.1", "rollout", "gpu1"), step("2.2", "rollout", "gpu2"))
    again = restart(other, work("1"), *seats)
    assert (again(), again(), other.ended) == (None, "rollout runs as step 2.9", ["2.2"])


def test_a_component_is_a_role() -> None:
    """The steps in it have their program's names; with one step it is that."""
    jobs = (HET[0], replace(HET[1], name="reward"))
    cluster = Cluster(STEPS[0], step("2.1", "python", "gpu1"), jobs=jobs)
    assert restart(cluster, work("0", role="reward"), ("reward", "0", ""))() is None
    assert cluster.ended == ["2.1"]


@pytest.mark.parametrize(
    ("steps", "asked", "problem"),
    [
        ((), work("1"), "none is called rollout-1 (there are none)"),
        ((step("2.1", "rollout", "gpu1"),), work("1"), "2.1 (rollout) is of rollout 0 too"),
        ((*STEPS, step("2.7", "rollout_1", "gpu2")), work("1"), "cannot be decided of rollout-1, rollout_1"),
        ((*STEPS, step("2.7", "rollout-1", "gpu2")), work("1"), "2.2, 2.7 may each be rollout 1"),
        (STEPS, work("1", plan={"leaves": ["gpu2"]}), "cannot leave gpu2 alone"),
        (STEPS, work(), "none of it is registered"),
    ],
)
def test_what_cannot_be_decided_is_not_touched(steps: tuple[SlurmStep, ...], asked: RoleWork, problem: str) -> None:
    """No step is ended that may hold another instance, or may not be the one that is meant: others may know more."""
    cluster = Cluster(*steps)
    with pytest.raises(NotHere) as refused:
        roles(cluster).find_role(asked)
    assert problem in str(refused.value)


def test_another_job_is_left_to_others() -> None:
    """By its number or its name; one that does not run is none."""
    for jobs in ((), (replace(HET[0], state="PENDING"),), (HET[0], replace(HET[0], number="5"))):
        with pytest.raises(NotHere):
            roles(Cluster(*STEPS, jobs=jobs)).find_role(work("1"))
    asked = RoleWork.of(work("1").plan | {"job": "rl-1"})
    assert roles(Cluster(*STEPS)).find_role(asked).problem is None


def test_steps_as_squeue_prints_them() -> None:
    """The batch script and what Slurm puts beside it are no steps to end; a name may hold the separator."""
    printed = "1.0|100|gpu0|trainer\n1.batch|99|gpu0|batch\n2.11|N/A|gpu[1-2]|a|b\n3.extern|9|gpu0|extern\n"
    found = slurm_output.steps(printed)
    assert [(one.id, one.job, one.started_at, one.nodes, one.name) for one in found] == [
        ("1.0", "1", 100.0, ("gpu0",), "trainer"), ("2.11", "2", None, ("gpu1", "gpu2"), "a|b"),
    ]  # fmt: skip
