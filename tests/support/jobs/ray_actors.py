"""Two trainers and four rollouts as actors of a local Ray cluster; run by a Python that has Ray, not by the tests' own.

Prints one JSON line, pid → [class, number], when all six run a method, and goes on until its input ends.

    python ray_actors.py named|numbered|variables FOLDER
"""

import importlib
import json
import os
import sys
from typing import Any

ray: Any = importlib.import_module("ray")
COUNTS = {"Trainer": 2, "Rollout": 4}


class Worker:
    """What an actor does here: it says its process, and sleeps in a method."""

    def __init__(self, number: int) -> None:
        self.number = number

    def pid(self) -> int:
        """Return its process."""
        return os.getpid()

    def work(self) -> None:
        """Stay in a method."""
        importlib.import_module("time").sleep(600)


class Trainer(Worker):
    """A class of actors."""


class Rollout(Worker):
    """Another."""


def numbered(kind: type) -> type:
    """Return the class with a name for each of its actors."""
    name = kind.__name__
    return type(name, (kind,), {"__repr__": lambda self: f"{name.lower()}-{self.number}"})


def main(form: str, folder: str) -> None:
    """Start the actors in one of three forms, and wait."""
    ray.init(
        num_cpus=8, include_dashboard=False, _temp_dir=folder, log_to_driver=False, object_store_memory=100_000_000
    )
    actors = {}
    for kind in (Trainer, Rollout):
        name = kind.__name__
        actor = ray.remote(num_cpus=1)(numbered(kind) if form == "numbered" else kind)
        for number in range(COUNTS[name]):
            options: dict[str, Any] = {"name": f"{name.lower()}-{number}"}
            if form == "variables":
                variables = {"FAULTHOUND_ROLE": name.lower(), "RANK": str(number)}
                options["runtime_env"] = {"env_vars": variables}
            actors[name, number] = actor.options(**options).remote(number)
    pids = dict(zip(ray.get([one.pid.remote() for one in actors.values()]), actors, strict=True))
    running = [one.work.remote() for one in actors.values()]
    ray.wait(running, timeout=1.0)
    print(json.dumps(pids), flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
