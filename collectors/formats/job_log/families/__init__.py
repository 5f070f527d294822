"""The lines of one family of programs a file, as rows: what they look like, and which event they are."""

from __future__ import annotations

from collectors.formats.job_log.families import accelerators, mpi, network, programs, pytorch, ray, schedulers, serving

SHAPES = (
    *network.SHAPES,
    *pytorch.SHAPES,
    *programs.SHAPES,
    *schedulers.SHAPES,
    *mpi.SHAPES,
    *ray.SHAPES,
    *serving.SHAPES,
    *accelerators.SHAPES,
)
BLOCKS = (*pytorch.BLOCKS, *schedulers.BLOCKS, *mpi.BLOCKS, *ray.BLOCKS, *accelerators.BLOCKS)
