"""The adapter to Slurm: its commands, what they print, and which of its nodes and jobs a remediation is about."""

from __future__ import annotations

from typing import Annotated

import typer

from service.client import Connection, Say


def run(
    connection: Connection,
    say: Say,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands for what can be claimed now, and end.")
    ] = False,
    command_seconds: Annotated[
        float, typer.Option(min=1, max=20, metavar="S", help="The longest that a command of Slurm may take.")
    ] = 20.0,
) -> None:
    """Do in Slurm what was approved: drain nodes, have their jobs run elsewhere, restart a role's steps; undo it.

    It needs scontrol and squeue as an operator of the cluster, and a token with the scope execute that
    no other process has. It does only what was approved, and never overwrites a reason that another
    has given a node.

    \b
    Examples:
      faulthound adapter slurm --token-file slurm.token
      faulthound adapter slurm --token-file slurm.token --dry-run
    """
    from service.adapters.scheduler import ClaimLoop
    from service.adapters.slurm.slurm_actions import SlurmScheduler
    from service.adapters.slurm.slurm_commands import Slurm
    from service.adapters.slurm.slurm_roles import SlurmRoles

    slurm = Slurm(command_seconds)
    loop = ClaimLoop(connection, SlurmScheduler(slurm), say, SlurmRoles(slurm, connection))
    if dry_run:
        typer.echo("\n".join(loop.dry_run()))
    else:
        loop.serve()
