"""The adapter to Ray: which actors it finds, what it asks of Ray in which order, and when it is done."""

from __future__ import annotations

from typing import Any

import pytest

from service.adapters.ray.ray_scheduler import Ray, RayRoles
from service.adapters.role_names import Nameless, name_of
from service.adapters.scheduler import NotHere, RoleWork, SchedulerAway, fence
from service.client import RequestRefused

PLAN = {
    "instance": "1",
    "epochs": {"1": 7},
    "nodes": ["n1"],
    "leaves": [],
    "onto": {},
    "gives": [],
    "gives_role": "rollout",
    "step": 4,
    "number": 1,
}


class Cluster(Ray):
    """A cluster in memory. ``restarts``: actors that Ray starts again."""

    def __init__(self, *names: str, restarts: bool = True) -> None:
        super().__init__("python3", "auto", "rl", "faulthound")
        self.pids = {name: {"state": "ALIVE", "pid": 100 + number} for number, name in enumerate(names)}
        self.restarts, self.asked, self.away = restarts, list[str](), 0

    def ask(self, **asked: Any) -> dict[str, Any]:
        """Answer as the program inside of Ray does."""
        if asked["do"] == "actors":
            return {"actors": {name: dict(one) for name, one in self.pids.items()}}
        if self.away:
            self.away -= 1
            raise SchedulerAway("Ray did not answer")
        self.asked.append(f"{asked['do']} {asked.get('actor') or asked['restart']['instances']}")
        if asked["do"] == "end":
            del self.pids[asked["actor"]]
        elif asked["do"] == "hook":
            self.pids["rollout-1"] = {"state": "ALIVE", "pid": 999}
        elif self.restarts:
            self.pids[asked["actor"]] = {"state": "RESTARTING", "pid": 0}
        else:
            self.pids[asked["actor"]]["state"] = "DEAD"
        return {}


class Service:
    """A service that fences, unless the instance is at another epoch by now."""

    def __init__(self, epoch: int = 7, *seats: tuple[str, str]) -> None:
        self.epoch, self.fenced = epoch, list[str]()
        self.items = [{"role": role, "instance": instance, "epoch": epoch} for role, instance in seats]

    def find(self, _path: str) -> dict[str, Any]:
        """Return the directory of the job's roles."""
        return {"items": self.items}

    def send(self, _method: str, path: str, json: dict[str, Any]) -> None:
        """Fence."""
        if json["epoch"] != self.epoch:
            raise RequestRefused("it is at epoch 9 by now", 409)
        self.fenced.append(f"{path} {json['role']} {json['instance']} {json['epoch']}")


def found(**more: Any) -> dict[str, Any]:
    """Return a remediation as REST sends it."""
    return {"id": "rem-1", "job": "rl", "kind": "restart_role", "role": "rollout", "role_restart": PLAN | more}


def scheduler(cluster: Cluster, service: Service | None = None) -> RayRoles:
    """Return the adapter's side of job rl."""
    return RayRoles(cluster, service or Service(), "rl")  # type: ignore[arg-type]


def restart(cluster: Cluster, service: Service, **more: Any) -> Any:
    """Return the restart of rollout 1, whose old process is fenced."""
    ours = scheduler(cluster, service)
    work = ours.find_role(RoleWork.of(found(**more)))
    assert work.problem is None
    step = ours.restart_role(work, lambda: None)
    assert fence(service, work)  # type: ignore[arg-type]
    return step


def test_an_actor_is_fenced_killed_and_awaited() -> None:
    """Once: while Ray starts it again nothing more is asked, and it is done when it lives in another process."""
    cluster, service = Cluster("rollout-0", "rollout-1"), Service()
    step = restart(cluster, service)
    assert (step(), step(), cluster.asked) == (None, None, ["kill rollout-1"])
    assert service.fenced == ["/v1/jobs/rl/roles/fence rollout 1 7"]
    assert step.refusal == "rollout 1 is restarting"
    cluster.pids["rollout-1"] = {"state": "ALIVE", "pid": 555}
    assert step() == "rollout-1 runs as pid 555"


def test_what_was_asked_before_is_not_asked_again() -> None:
    """Ray was away between two steps: the restart goes on at its place, and fences nothing twice."""
    cluster, service = Cluster("rollout-0", "rollout-1"), Service()
    step = restart(cluster, service, gives=["0"])
    cluster.away = 1
    with pytest.raises(SchedulerAway):
        step()
    step()
    assert cluster.asked == ["end rollout-0", "kill rollout-1"]
    assert len(service.fenced) == 1


def test_the_jobs_own_hook_comes_first() -> None:
    """It starts what Ray may not start again, and on another node; without it such a restart is not begun."""
    cluster = Cluster("faulthound")
    step = restart(cluster, Service(), leaves=["n1"])
    assert step() == "rollout-1 runs as pid 999"
    assert cluster.asked == ["hook ['1']"]
    alone = scheduler(Cluster("rollout-1")).find_role(RoleWork.of(found(leaves=["n1"])))
    assert "only the job's actor faulthound can start rollout 1 elsewhere" in str(alone.problem)


def test_an_instance_that_was_replaced_is_left_alone() -> None:
    """Nothing is killed where the fence is refused."""
    cluster = Cluster("rollout-1")
    assert not fence(Service(epoch=9), RoleWork.of(found()))  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        restart(cluster, Service(epoch=9))
    assert cluster.asked == []


def test_what_it_does_not_know_it_leaves_to_others() -> None:
    """Another job; an actor of no such name; a role of which no instance is known."""
    with pytest.raises(NotHere):
        scheduler(Cluster()).find_role(RoleWork.of(found() | {"job": "other"}))
    absent = scheduler(Cluster("reward-0")).find_role(RoleWork.of(found()))
    assert "none is called rollout-1" in str(absent.problem)
    nameless = scheduler(Cluster("rollout-1")).find_role(RoleWork.of(found(instance=None, epochs={})))
    assert "not registered" in str(nameless.problem)


def test_a_name_in_two_forms_is_no_name() -> None:
    """Which of two actors is meant cannot be decided, and neither can a name that another instance may have."""
    two = scheduler(Cluster("rollout-1", "rollout_1")).find_role(RoleWork.of(found()))
    assert "cannot be decided of rollout-1, rollout_1: call it rollout-1 alone" in str(two.problem)
    seats = [("rollout", "11"), ("rollout1", "1")]
    assert name_of(("rollout", "11"), ["rollout11"], seats[:1]) == "rollout11"
    assert name_of(("rollout", "11"), ["rollout11", "rollout-11"], seats) == "rollout-11"
    for seat in seats:
        with pytest.raises(Nameless, match="cannot be decided of rollout11"):
            name_of(seat, ["rollout11"], seats)


def test_an_actor_that_ray_does_not_start_again_is_not_done() -> None:
    """It is dead: the loop gives up after its patience, and says what it saw."""
    cluster = Cluster("rollout-1", restarts=False)
    step = restart(cluster, Service())
    assert step() is None
    assert step() is None
    assert step.refusal == "rollout 1 is dead"
