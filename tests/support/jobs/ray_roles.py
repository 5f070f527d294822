"""Named actors of a local Ray cluster that register in Faulthound's directory of roles; run by a Python that has Ray.

Rollouts may be started again by Ray, the reward may not: the job's own actor `faulthound` starts it. Prints one JSON line with
the cluster's address when all have registered, and goes on until its input ends.

    python ray_roles.py FOLDER_OF_FAULTHOUND_ROLES
"""

import contextlib
import importlib
import itertools
import json
import sys
import threading
import time
from typing import Any

ray: Any = importlib.import_module("ray")
SEATS = {"trainer": 2, "rollout": 2, "reward": 1}


class Worker:
    """One instance, which registers, and then stays in a method."""

    def __init__(self, role: str, instance: str, folder: str) -> None:
        sys.path.insert(0, folder)
        client: Any = importlib.import_module("faulthound_roles")
        self.me = client.join(role, instance, lost=client.end_process)
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        """Finish something every second: a restart counts only with work that is seen."""
        for steps in itertools.count():
            self.me.progress(steps=steps)
            time.sleep(1.0)

    def ready(self) -> int:
        """Return its epoch."""
        return int(self.me.epoch)

    def work(self) -> None:
        """Stay in a method, as a loop of rollouts does."""
        time.sleep(3_600)


class Owner:
    """The job's own restart of what Ray may not start again."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def restart_role(self, role: str, instances: list[str], leaves: list[str], onto: dict[str, str]) -> str:
        """Start actors anew; the old ones are ended first."""
        for instance in instances:
            name = f"{role}-{instance}"
            with contextlib.suppress(ValueError):
                ray.kill(ray.get_actor(name))
            for _ in range(100):  # until the name is free
                try:
                    start(role, instance, self.folder)
                    break
                except ValueError:
                    time.sleep(0.1)
        return f"started {role} {instances}, not on {leaves}, {onto}"


def start(role: str, instance: str, folder: str) -> Any:
    """Start a detached actor by its name."""
    restarts = 0 if role == "reward" else -1
    options = {"name": f"{role}-{instance}", "lifetime": "detached", "num_cpus": 0.01, "max_restarts": restarts}
    return ray.remote(Worker).options(**options).remote(role, instance, folder)


def main() -> None:
    """Start all, and wait."""
    folder = sys.argv[1]
    with_hook = sys.argv[2] == "hook"
    context = ray.init(
        "local", num_cpus=2, namespace="rl", include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    workers = [start(role, str(number), folder) for role, count in SEATS.items() for number in range(count)]
    ray.get([worker.ready.remote() for worker in workers])
    for worker in workers:
        worker.work.remote()
    if with_hook:
        owner = ray.remote(Owner).options(name="faulthound", lifetime="detached", num_cpus=0.01).remote(folder)
        ray.get(owner.__ray_ready__.remote())
    print(json.dumps({"address": context.address_info["gcs_address"]}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
