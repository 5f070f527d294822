"""The job's nodes, its standbys, the partition's cold machines, and those that are out for repair."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

import simpy

from tests.support.ettr.mixes import Mix

Wait = Generator[simpy.Event, object, None]


class Fleet:
    """Every machine, by name. A machine that is out comes back as a cold one once it may."""

    def __init__(self, env: simpy.Environment, mix: Mix, cold: int) -> None:
        self.env = env
        self.job = [f"gpu-{number:05d}" for number in range(mix.nodes)]
        self.group_nodes = mix.group_nodes
        self.warm: list[str] = []
        self.cold = [f"gpu-{mix.nodes + number:05d}" for number in range(cold)]
        self.out: set[str] = set()
        self.most_out = 0
        self.holders = self._backups()

    @property
    def spares(self) -> int:
        """Machines that could take an evicted one's place."""
        return len(self.warm) + len(self.cold)

    @property
    def size(self) -> int:
        """All that report."""
        return len(self.job) + self.spares

    def wake(self, wanted: int) -> None:
        """Have so many standbys awake, as far as there are machines."""
        while len(self.warm) < wanted and self.cold:
            self.warm.append(self.cold.pop(0))

    def swap(self, out: Iterable[str]) -> list[str]:
        """Put spares in the places of these nodes, and return those for which there was one."""
        done = []
        for node in out:
            if node in self.job and self.spares:
                self.job[self.job.index(node)] = self.warm.pop(0) if self.warm else self.cold.pop(0)
                self.out.add(node)
                done.append(node)
        self.most_out = max(self.most_out, len(self.out))
        self.holders = self._backups()
        return done

    def repair(self, node: str, hours: float, back: Callable[[str], float]) -> Wait:
        """Bring a node back after so long; ``back`` says how long it must wait yet before it counts as a spare."""
        yield self.env.timeout(hours * 3_600.0)
        yield self.env.timeout(back(node))
        self.out.discard(node)
        self.cold.append(node)

    def group_of(self, node: str) -> tuple[str, ...]:
        """Return the parallel group that a node of the job is in: its neighbours in the rank order."""
        first = self.job.index(node) // self.group_nodes * self.group_nodes
        return tuple(self.job[first : first + self.group_nodes])

    def _backups(self) -> dict[str, tuple[str, ...]]:
        """Return who backs up whose checkpoint shards: a node half the job away, in no parallel group with it."""
        half = len(self.job) // 2
        return {node: (self.job[(place + half) % len(self.job)],) for place, node in enumerate(self.job)}
