"""Each node's process table is what Slurm has started there: for the jobs of the measured loop."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.jobs.farm import Farm
from tests.support.slurm.cluster import SlurmCluster


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Have these in the environment of what is started."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def settle(farm: Farm, cluster: SlurmCluster) -> None:
    """Let what Slurm has started appear on its nodes; what has ended disappears."""
    mark = f"SLURM_CONF={cluster.variables['SLURM_CONF']}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            reported = (entry / "environ").read_bytes().split(b"\0")
            node = _value(reported, b"SLURMD_NODENAME")
            if mark in reported and node in farm.nodes:
                (farm.proc(node) / entry.name).symlink_to(entry)
    farm.drop_ended()


def _value(environment: Sequence[bytes], name: bytes) -> str:
    found = (item.partition(b"=")[2] for item in environment if item.startswith(name + b"="))
    return next(found, b"").decode("ascii", "replace")
