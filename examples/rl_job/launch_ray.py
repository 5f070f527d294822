"""Starts the job as named actors of Ray, one a process; run by a Python that has Ray.

    faulthound serve &
    RAY_PYTHON examples/rl_job/launch_ray.py --folder out/rl --python .venv/bin/python
    faulthound adapter ray --job rl-sums --namespace rl --address ADDRESS --ray-python RAY_PYTHON

An actor holds one process, which ends with it: so a kill of the actor, from the adapter or from Ray, is one of the process,
however it hangs. Ray starts an actor again that was killed, and one whose process failed. The address is the first line.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import launch

PR_SET_PDEATHSIG = 1
NAMESPACE = "rl"
LIBC = "libc.so.6"


class Instance:
    """The actor of one process of the job."""

    def __init__(self, command: list[str], variables: dict[str, str], log: str) -> None:
        """Start the process; with it the actor ends, unless it ends well."""
        with Path(log).open("ab") as file:
            self._process = subprocess.Popen(
                command, env=os.environ | variables, stdout=file, stderr=file, start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 one call, of a library that is loaded
            )  # fmt: skip
        threading.Thread(target=self._watch, daemon=True).start()

    def code(self) -> int | None:
        """Return the exit code of the process; None: it runs."""
        return self._process.poll()

    def _watch(self) -> None:
        if self._process.wait() != 0:
            os._exit(1)


def _end_with_parent() -> None:
    ctypes.CDLL(LIBC).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Run the job until its controller has ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="journal, checkpoint and logs")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch, for the processes")
    parser.add_argument("--job", default="rl-sums")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--rollouts", type=int, default=4)
    parser.add_argument("--off-policy", action="store_true")
    parser.add_argument("--tool-seconds", type=float, default=0.005)
    parser.add_argument("--lease-seconds", type=float, default=20.0)
    options = parser.parse_args()
    job = launch.planned(options)
    ray: Any = importlib.import_module("ray")
    context = ray.init(
        "local", num_cpus=2, namespace=NAMESPACE, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    print(json.dumps({"address": context.address_info["gcs_address"]}), flush=True)
    trainers = [member for member in job.members if member.role == "trainer"]
    group = {"WORLD_SIZE": str(len(trainers)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch.free_port())}
    actors: list[Any] = []  # kept: Ray ends an actor that nobody refers to
    for member in job.members:
        name = f"{member.role}-{member.instance}"
        own = {**job.variables, "FAULTHOUND_ROLE": member.role, "RANK": member.instance}
        own |= group if member in trainers else {}
        command = [options.python, *member.command[1:]]
        kept = ray.remote(Instance).options(name=name, num_cpus=0.01, max_restarts=-1)
        actors.append(kept.remote(command, own, str(options.folder / f"{name}.log")))
    ray.get([actor.__ray_ready__.remote() for actor in actors])
    while True:
        time.sleep(1.0)
        try:
            # The controller is the first.
            if (code := ray.get(actors[0].code.remote(), timeout=30)) is not None:
                return int(code)
        except ray.exceptions.RayError:
            pass  # it is being started again


if __name__ == "__main__":
    sys.exit(main())
