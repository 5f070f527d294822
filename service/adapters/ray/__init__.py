"""The adapter to Ray: restarts the actors of one role of a job, while the others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.client import Connection, Say


def run(
    connection: Connection,
    say: Say,
    job: Annotated[str, typer.Option("--job", metavar="JOB", help="The job, as Faulthound calls it.")],
    namespace: Annotated[str, typer.Option(metavar="NAME", help="The namespace of its actors in Ray.")],
    ray_python: Annotated[
        Path, typer.Option("--ray-python", metavar="PYTHON", help="A Python that has the cluster's version of Ray.")
    ] = Path("python3"),
    address: Annotated[str, typer.Option(metavar="ADDRESS", help="The cluster, as ray.init takes it.")] = "auto",
    hook: Annotated[
        str, typer.Option(metavar="ACTOR", help="The actor whose restart_role starts what Ray itself cannot.")
    ] = "faulthound",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what is done for what can be claimed now, and end.")
    ] = False,
) -> None:
    """Restart in Ray the actors of a role, as was approved, until it is stopped.

    It runs on a node of the cluster, with a token of the scope execute that no other process has.
    Actors are found by their names: rollout-3, rollout_3 or rollout3.

    \b
    Examples:
      faulthound adapter ray --job rl-math --namespace rl --ray-python /opt/ray/bin/python --token-file ray.token
    """
    from service.adapters.ray.ray_scheduler import Ray, RayRoles
    from service.adapters.scheduler import ClaimLoop

    roles = RayRoles(Ray(str(ray_python), address, namespace, hook), connection, job)
    loop = ClaimLoop(connection, None, say, roles)
    if dry_run:
        typer.echo("\n".join(loop.dry_run()))
    else:
        loop.serve()
