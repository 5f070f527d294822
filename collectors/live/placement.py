"""Which ranks of which jobs run on this node, and as which processes: on change, and every minute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from collectors.live import NothingToCollect, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.ranks import TrainingProcess
from collectors.records import Members, Placement, Unread
from collectors.records.identity import PLACED

AGAIN_SECONDS = 60.0

Attempt = tuple[str, int]


@collector(
    "placement", gives="which ranks of which jobs run here, as which process", every_seconds=5.0, limit_seconds=5.0
)
class Placements:
    """Reports each attempt's ranks when they change, and every minute."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._reported: dict[Attempt, tuple[float, Placement]] = {}
        self._unreadable = 0

    def __call__(self, request: Request | None) -> Iterable[Yielded]:
        """Yield the placements that are due."""
        found = self._host.training()
        yield from self._unread()
        if not found:
            self._reported.clear()
            refused = f"; {self._unreadable} Python processes may not be read" if self._unreadable else ""
            raise NothingToCollect(f"no process here has a rank or a role in its environment{refused}")
        attempts: dict[Attempt, list[TrainingProcess]] = defaultdict(list)
        for process in found:
            attempts[process.job or "", process.attempt or 0].append(process)
        self._reported = {attempt: last for attempt, last in self._reported.items() if attempt in attempts}
        now = self._host.clock.monotonic()
        for attempt, processes in attempts.items():
            placement = _placement(self._host.node, processes)
            reported_at, reported = self._reported.get(attempt, (now, None))
            if request is not None or placement != reported or now - reported_at >= AGAIN_SECONDS:
                self._reported[attempt] = now, placement
                yield placement

    def _unread(self) -> Iterator[Unread]:
        """Report once that some processes may train and may not be read."""
        count, before = self._host.process_table.unreadable, self._unreadable
        self._unreadable = count
        if count > before:
            reason = f"{count} Python processes' environments may not be read, so their ranks are not seen"
            reason += ": run the agent as root or with CAP_SYS_PTRACE"
            yield Unread(source=f"{self._host.roots.proc}/PID/environ", outcome="refused", reason=reason)


def _placement(node: str, processes: Sequence[TrainingProcess]) -> Placement:
    """Return one attempt's ranks on this node; of two processes with one rank and role the younger, the older is a leftover."""
    newest = {(one.rank, one.role): one for one in sorted(processes, key=lambda one: (one.start_ticks, one.pid))}
    ranked = [newest[key] for key in sorted(newest, key=lambda key: (key[0], key[1] or ""))]
    sizes = {one.world_size for one in ranked if one.world_size is not None}
    numbers = {one.rank for one in ranked}
    several = len(numbers) < len(ranked) or len(sizes) > 1 or max(numbers) >= PLACED
    local_ranks = [one.local_rank for one in ranked]
    started_ats = [one.started_at for one in ranked]
    return Placement(
        source="placement",
        job=ranked[0].job,
        attempt=ranked[0].attempt,
        ranks=Members.of(one.rank for one in ranked),
        nodes=(node,) * len(ranked),
        pids=tuple(one.pid for one in ranked),
        world_size=max(sizes, default=None) if not several else None,
        world_sizes=tuple(one.world_size or 0 for one in ranked) if several and sizes else (),
        local_ranks=tuple(local_ranks) if None not in local_ranks else (),  # type: ignore[arg-type]
        roles=tuple(one.role or "" for one in ranked) if any(one.role for one in ranked) else (),
        devices=tuple(one.device or "" for one in ranked) if any(one.device for one in ranked) else (),
        started_ats=tuple(started_ats) if None not in started_ats else (),  # type: ignore[arg-type]
        launcher=ranked[0].launcher,
        labels=_shared_labels(ranked),
    )


def _shared_labels(processes: Sequence[TrainingProcess]) -> dict[str, str]:
    first, *others = processes
    return {
        name: value for name, value in first.labels.items() if all(other.labels.get(name) == value for other in others)
    }
