"""Which rank a line with a local rank is of: where a log's lines show that the job has one node, the two are the same."""

from __future__ import annotations

from collectors.formats import Input
from collectors.formats.job_log.job_lines import Line


class LocalRanks:
    """What the lines of one log show of its local ranks and nodes."""

    def __init__(self, input: Input) -> None:
        self._input = input
        self._first_place: tuple[str | None, int | None] | None = None  # node, task of the first line with a local rank
        self.many_nodes = False  # lines with local ranks are of several nodes
        self._differs = False  # a line's rank is not its local rank: the job has other nodes
        self._is_rank = False  # a line's rank is its local rank: this is the job's first node
        self._locals: set[int] = set()  # that print lines of their own
        self._named: set[int] = set()  # ranks that lines name

    def take(self, line: Line, rank: int | None) -> None:
        """Learn from a line with a local rank whether the job has several nodes; srun starts one torchrun a node."""
        if line.local_rank is not None:
            place = (line.node, line.task)
            self._first_place = self._first_place or place
            self.many_nodes = self.many_nodes or place != self._first_place
            self._locals.add(line.local_rank)
        local_rank = self._input.local_rank if line.local_rank is None else line.local_rank
        self.compare(rank, local_rank)

    def compare(self, rank: int | None, local_rank: int | None) -> None:
        """Learn from a rank that is named, and its local rank."""
        if rank is not None:
            self._named.add(rank)
        if rank is not None and local_rank is not None:
            self._differs = self._differs or local_rank != rank
            self._is_rank = self._is_rank or local_rank == rank

    @property
    def own_rank(self) -> int | None:
        """Return the rank that the file is of; the number beside a role may be a node's, whose ranks then name themselves."""
        one = self._named <= {self._input.number} and len(self._locals) < 2
        return self._input.number if self._input.rank is None and one else self._input.rank

    def rank_of(self, local_rank: int | None) -> int | None:
        """Return the file's rank, or the one that a local rank is."""
        return own if (own := self.own_rank) is not None else self.rank_of_local(local_rank)

    def rank_of_local(self, local_rank: int | None) -> int | None:
        """Return the rank that a local rank is: where a line shows that they are one, or every local rank prints here.

        None where the job may have a second node. One local rank alone may be of any node.
        """
        several = self._input.node is not None or self.many_nodes or self._differs
        if several or local_rank is None:
            return None if several else self._input.local_rank
        every = len(self._locals) > 1 and self._locals == set(range(len(self._locals)))
        return local_rank if self._is_rank or (every and local_rank in self._locals) else None
