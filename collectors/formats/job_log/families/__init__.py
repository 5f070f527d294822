"""The lines of one family of programs a file, as rows: what they look like, and which event they are."""

from __future__ import annotations

from collectors.formats.job_log.families import (
    accelerators,
    compilers,
    daemons,
    drivers,
    kernel_tools,
    mpi,
    network,
    nodes,
    programs,
    pytorch,
    ray,
    schedulers,
    serving,
    slurm,
    storage,
    surroundings,
)

SHAPES = (
    *network.SHAPES,
    *pytorch.SHAPES,
    *programs.SHAPES,
    *drivers.SHAPES,
    *kernel_tools.SHAPES,
    *schedulers.SHAPES,
    *slurm.SHAPES,
    *nodes.SHAPES,
    *mpi.SHAPES,
    *ray.SHAPES,
    *serving.SHAPES,
    *accelerators.SHAPES,
    *daemons.SHAPES,
    *compilers.SHAPES,
    *storage.SHAPES,
    *surroundings.SHAPES,
)
BLOCKS = (
    *network.BLOCKS,
    *pytorch.BLOCKS,
    *programs.BLOCKS,
    *schedulers.BLOCKS,
    *slurm.BLOCKS,
    *nodes.BLOCKS,
    *mpi.BLOCKS,
    *ray.BLOCKS,
    *accelerators.BLOCKS,
    *daemons.BLOCKS,
)
