"""What the kernel reports of a host, a process or a GPU while the job goes on: it ended no job, and is no evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from analyzers.diagnosis.hardware.places import Places
from analyzers.knowledge import Knowledge, xids
from analyzers.model.clocks import ZONES
from analyzers.model.window import Window, last_activity_ns, newest_step_at
from collectors.records import WHOLE_TEXT, KernelEvent, LogEvent, ProcessState, Steps

PASSING = frozenset({"soft_lockup", "rcu_stall", "hung_task", "oom_kill", "oom_invoked", "segfault"})
OF_A_PROCESS = frozenset({"oom_kill", "oom_invoked", "segfault"})
OF_DISKS = frozenset({"io_error", "fs_error"})
GPU_EVENTS = ("xid", "off_bus", "sxid")
OF_MEMORY = frozenset({"mce"})  # of the host: who reads what is lost dies of it
OF_DEVICES = OF_DISKS.union(GPU_EVENTS, OF_MEMORY)  # what fails is met at once by who uses it
PASSED_SECONDS = 300.0  # a kernel reports a stuck processor again every minute or less for as long as it is stuck
OUTLIVED_SECONDS = 1_800.0  # of a job that failed in the end: a GPU may work on for a while after its first error
AT_ONCE_SECONDS = 120.0  # of one whose GPU was lost, or whose program died of it: by less do the clocks of nodes differ
AT_ONCE = frozenset({"restart_app", "restart_bm"})
"""What the table asks for after an Xid that ends the program at once: it has died, or its GPU no longer answers."""
STEP_SECONDS = 30.0  # no step ends so long after its GPU has failed
TIME_OUT_SECONDS = 600.0  # for which its peers wait


def without_passed(events: Iterable[KernelEvent], window: Window) -> list[KernelEvent]:
    """Leave out ends of processes from before the job began on its node, and what was followed by progress of both.

    Only a known clock can show that. An agent that has just started reads what the kernel wrote since boot. In files, whose lines
    may lack their zone, the job's logs must report no failure, and every rank must go on: then nothing ended by the event.
    """
    known = list(events)
    if not any(event.event in PASSING for event in known):
        return known
    (of_job, of_node), began = _went_on(window), _began(window)
    every = _every_rank_went_on(window)
    return [
        event for event in known
        if not _passed(event, min(of_job, of_node.get(event.node or "", of_job)), began.get(event.node or "", 0.0))
        and not (event.event in PASSING and event.at is not None and event.at + PASSED_SECONDS < every)
    ]  # fmt: skip


def outlived(
    events: Iterable[KernelEvent], window: Window, places: Places, knowledge: Knowledge
) -> tuple[list[KernelEvent], list[KernelEvent]]:
    """Return what befell devices in files, and the ranks of their node, or all, went on for minutes: it stopped no job.

    Second come those of which that is open: a stamp may be of another zone, by whole hours. Of a job that failed, what lies so
    before its end may yet be the cause, unless the log of another event agrees with the job's stamps as they are. Of a
    disk that is not assumed: its errors seldom stop a job.
    """
    newest = _newest_steps(steps for steps in window.records_of(Steps) if steps.at is None)  # an agent dates its series
    of_devices = [(event, event.at) for event in events if event.event in OF_DEVICES and event.at is not None]
    if not newest or not of_devices:
        return [], []
    dated = [(event, at, _until(places.ranks_on(event.node), newest)) for event, at in of_devices]
    if _is_sound(window):
        return [event for event, at, until in dated if at + PASSED_SECONDS < until], []
    logged = [event.at for event in window.records_of(LogEvent) if event.at is not None]
    last_sign_at = max([*logged, *newest.values()])
    agree = any(_fits(at, until, last_sign_at) for _, at, until in dated)
    passed: list[KernelEvent] = []
    open_still: list[KernelEvent] = []
    for event, at, until in dated:
        at_once = not window.parts and _ends_at_once(event, knowledge)
        if at + (AT_ONCE_SECONDS if at_once else OUTLIVED_SECONDS) < until:
            may_fit = not agree and event.event not in OF_DISKS and _fits_in_a_zone(at, until, last_sign_at)
            (open_still if may_fit else passed).append(event)
    return passed, open_still


def _ends_at_once(event: KernelEvent, knowledge: Knowledge) -> bool:
    return event.event in ("off_bus", *OF_MEMORY) or (
        event.event == "xid" and event.code is not None and xids.xid(knowledge, event.code).now in AT_ONCE
    )


def _until(ranks: Sequence[int], newest: Mapping[int | None, float]) -> float:
    """Return until when all of these ranks report steps; all ranks, where none of these does."""
    own = [newest[rank] for rank in ranks if rank in newest]
    return min(own or newest.values())


def _fits(at: float, until: float, last_sign_at: float) -> bool:
    return until - STEP_SECONDS <= at <= last_sign_at + TIME_OUT_SECONDS


def _fits_in_a_zone(at: float, until: float, last_sign_at: float) -> bool:
    return any(_fits(at + zone, until, last_sign_at) for zone in ZONES)


def _newest_steps(series: Iterable[Steps]) -> dict[int | None, float]:
    newest: dict[int | None, float] = {}
    for steps in series:
        newest[steps.rank] = max(newest.get(steps.rank, 0.0), newest_step_at(steps) or 0.0)
    return newest


def _is_sound(window: Window) -> bool:
    """Whether nothing of a failure was read of the job itself."""
    return not window.dumps and all(event.event == WHOLE_TEXT for event in window.records_of(LogEvent))


def _every_rank_went_on(window: Window) -> float:
    """Return until when every rank reports steps in files without a failure; 0.0 where that is not known."""
    if window.live or any(event.event != WHOLE_TEXT for event in window.records_of(LogEvent)):
        return 0.0
    return min(_newest_steps(window.records_of(Steps)).values(), default=0.0)


def _passed(event: KernelEvent, went_on_at: float, began_at: float) -> bool:
    # With both clocks of one boot nothing is guessed: a line of text may lack its zone, or its year.
    known = None not in (event.boot_id, event.monotonic_at, event.at)
    at = event.at or 0.0
    ended = event.event in OF_A_PROCESS and at < began_at  # that process was none of this job
    return known and event.event in PASSING and (ended or at + PASSED_SECONDS < went_on_at)


def _began(window: Window) -> dict[str, float]:
    """Return when the first process of the job on each node was started."""
    found: dict[str, float] = {}
    for row in window.records_of(ProcessState):
        if row.started_at is not None and row.rank is not None:
            found[row.node or ""] = min(row.started_at, found.get(row.node or "", row.started_at))
    return found


def _went_on(window: Window) -> tuple[float, dict[str, float]]:
    """Return when most of the ranks last launched a collective or reported a step, and when those of each node did."""
    launched = {(dump.node, dump.rank): last_activity_ns(dump) / 1e9 for dump in window.dumps}
    stepped = {
        (steps.node, steps.rank): steps.at for steps in window.records_of(Steps) if steps.at is not None and steps.count
    }  # in order of time
    of_node: dict[str, float] = {}
    for (node, _), at in (*launched.items(), *stepped.items()):
        of_node[node or ""] = max(of_node.get(node or "", 0.0), at)
    return max(_most(launched.values()), _most(stepped.values())), of_node


def _most(instants: Iterable[float]) -> float:
    """Return what at least half of them reach: one wild clock does not make it."""
    ordered = sorted(instants)
    return ordered[len(ordered) // 2] if ordered else 0.0
