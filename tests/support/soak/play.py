"""Play a schedule in real time, and note what was done to which job and when: the truth that answers are compared with."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.soak import answers
from tests.support.soak.kinds import KINDS
from tests.support.soak.running import RunningJob, settle
from tests.support.soak.schedule import Event, Schedule
from tests.support.soak.site import STOPS_SECONDS, Site

TICK_SECONDS = 0.25
STARTS_SECONDS = 300.0
KNOWN_SECONDS = 60.0  # until the agents have reported all ranks; without that it goes on, too
REACHED_SECONDS = 90.0
HEARD_SECONDS = 120.0  # from a restart until something is heard of it again
LOAD_EVERY_SECONDS = 20.0
STILL_SECONDS = 8.0
GOES_ON_SECONDS = 60.0
ENDS_SECONDS = 90.0  # torchrun gives its ranks 30 s
GAP_SECONDS = 20.0  # between two jobs of a lane
AFTERMATH_SECONDS = 15.0  # after the last job: what its end leaves in the logs could open an incident
CLOSES_SECONDS = 150.0  # an agent that was not heard tries again within a minute
AGENT_DOWN_SECONDS = (3.0, 25.0)
Coroutine = Iterator[None]


class SilentService:
    """A service elsewhere, that no agent sees: it answers after the seconds that the address names."""

    def __init__(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, seconds: float) -> str:
        """Return an address that answers after so long."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/features/{seconds}"

    @staticmethod
    def _handler() -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(float(self.path.rpartition("/")[2]))
                with suppress(OSError):  # the job has ended
                    self.send_response(200)
                    self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@dataclass
class Player:
    """What plays, and what it has noted. One thread does everything, in turns: each part is a coroutine that yields."""

    schedule: Schedule
    site: Site
    folder: Path
    jobs: list[RunningJob] = field(default_factory=list)
    waiting: int = 0  # jobs that came to their meeting
    late_seconds: float = 0.0  # by which this process came later than it wanted, in all: the machine was busy
    service: SilentService = field(default_factory=SilentService)

    def note(self, **row: Any) -> None:
        """Append a row of the truth."""
        with (self.folder / "truth.jsonl").open("a") as stream:
            stream.write(json.dumps(row) + "\n")

    def play(self) -> None:
        """Play every lane to its end, then wait until what is open can have closed."""
        running: list[Coroutine] = [self._lane(number) for number in range(len(self.schedule.lanes))]
        lanes, besides = list(running), [*self._restarts(), *self._outage(), self._load(), self._standstills()]
        begun_at = time.monotonic()
        try:
            while lanes:
                lanes = [one for one in lanes if _goes_on(one)]
                besides = [one for one in besides if _goes_on(one)]
                settle(self.site, self.jobs)
                time.sleep(max(0.0, TICK_SECONDS + begun_at - time.monotonic()))
                now = time.monotonic()
                self.late_seconds += max(0.0, now - begun_at - TICK_SECONDS)
                begun_at = now
            self._start_missing()
            answers.wait_until_closed(self.site.url, AFTERMATH_SECONDS, CLOSES_SECONDS)
        finally:
            for job in self.jobs:
                job.close()

    def _start_missing(self) -> None:
        """Start again what a restart under way has left out."""
        if "service" not in self.site.processes:
            self.site.start_service()
            self.site.wait_for_service()
        for node in self.schedule.nodes:
            if node not in self.site.processes:
                self.site.start_agent(node)

    def _lane(self, number: int) -> Coroutine:
        for turn, plan in enumerate(self.schedule.lanes[number]):
            job = RunningJob(plan, self.site, self.folder / "jobs" / f"{number}-{turn}")
            yield from self._job(job)
            yield from _pause(GAP_SECONDS)

    def _job(self, job: RunningJob) -> Coroutine:
        plan, started_at = job.plan, time.time()
        job.start()
        self.jobs.append(job)
        yield from _until(lambda: bool(job.step()) or not job.alive(), STARTS_SECONDS)
        first_step_at = time.time() if job.step() else None
        yield from _until(lambda: self.site.knows(plan.name, plan.ranks) or not job.alive(), KNOWN_SECONDS, every=1.0)
        known_at = time.time()
        placed = {rank: job.node_of(rank) for rank in range(plan.ranks)}
        print(
            f"{_clock()} {plan.name}: {plan.story.name}, steps to {plan.output}, on {', '.join(plan.nodes)}", flush=True
        )
        if first_step_at is not None:
            yield from self._events(job, placed)
        yield from _until(lambda: not job.alive(), ENDS_SECONDS)
        over, over_at = job.alive(), time.time()  # it should have ended by itself
        job.close()
        if over:
            self.note(row="event", job=plan.name, kind="time_limit", at=over_at, until=time.time(), ranks=[], nodes=[])
        self.jobs.remove(job)
        ended_at = time.time()
        for pause in job.pauses(ended_at):
            self.note(row="event", job=plan.name, ranks=[], nodes=[], **pause)
        self.note(
            row="job", job=plan.name, story=plan.story.name, output=plan.output, nodes=list(plan.nodes), ranks=plan.ranks,
            step_seconds=plan.step_seconds, started_at=started_at, first_step_at=first_step_at, known_at=known_at,
            ended_at=ended_at, placed=placed, did_not_end=over,
        )  # fmt: skip

    def _events(self, job: RunningJob, placed: dict[int, str]) -> Coroutine:
        """Do what the plan says at its times; the parts of several events may interlock."""
        origin, under_way = time.monotonic(), list[Coroutine]()
        for event in job.plan.story.events:
            while (time.monotonic() < origin + event.after) and job.alive():
                under_way = [one for one in under_way if _goes_on(one)]
                yield
            if event.kind == "meet":
                yield from self._meet()
                origin = time.monotonic() - event.after  # the times go on from here
            elif job.alive():
                under_way.append(self._event(job, event, placed))
        while under_way:
            under_way = [one for one in under_way if _goes_on(one)]
            yield

    def _meet(self) -> Coroutine:
        self.waiting += 1
        yield from _until(lambda: self.waiting >= len(self.schedule.lanes), STARTS_SECONDS)

    def _event(self, job: RunningJob, event: Event, placed: dict[int, str]) -> Coroutine:
        everybody = event.kind in {"stop_all", "raise_all", "finish"}
        ranks = list(range(job.plan.ranks)) if everybody else [event.rank]
        kind = KINDS.get(event.kind)
        if event.kind == "service_down":
            yield from self._service_down(event.lasts)
            return
        if event.kind == "agent_down":
            for node in job.plan.nodes:
                yield from self._agent_down(node, signal.SIGKILL, event.lasts)
            return
        at, late = time.time(), self.late_seconds
        if kind is not None and kind.by_order:
            reported = {"raise_restarted": "raise"}.get(event.kind, event.kind)
            number = job.order(reported, ranks, url=self.service.url(event.lasts or 3600.0))
            yield from _until(lambda: job.reached_at(number) is not None or not job.alive(), REACHED_SECONDS)
            reached = job.reached_at(number)
            if reached is None:
                self.note(row="unreached", job=job.plan.name, kind=event.kind, at=at)
                return
            at = reached
        else:
            _inflict(job, event.kind, ranks)
        yield from _until(lambda: not job.alive(), (event.lasts or ENDS_SECONDS) - (time.time() - at))
        if event.kind in {"stop", "stop_all"}:
            job.signal_ranks(ranks, signal.SIGCONT)
        elif event.kind == "time_limit":
            job.signal_all(signal.SIGKILL)
        elif event.kind == "debugger":
            job.type_in(event.rank, b"c\n")
        until, step, late = time.time(), job.step(), self.late_seconds - late
        if kind is not None and not kind.ends:
            yield from _until(lambda: job.step() > step or not job.alive(), GOES_ON_SECONDS)
        guilty = [] if kind is None or kind.names == "nobody" else ranks
        self.note(
            row="event", job=job.plan.name, kind=event.kind, at=at, until=until, ranks=guilty,
            nodes=sorted({placed[rank] for rank in guilty}), late_seconds=round(late, 1),
            went_on=job.step() > step if job.alive() else None,
        )  # fmt: skip

    def _restarts(self) -> list[Coroutine]:
        """Restart an agent now and then, in order or with a kill."""
        if not self.schedule.agent_every_seconds:
            return []

        def go_on() -> Coroutine:
            chance = random.Random(f"agents {self.schedule.seed}")
            while True:
                yield from _pause(chance.uniform(0.6, 1.4) * self.schedule.agent_every_seconds)
                how = chance.choice((signal.SIGTERM, signal.SIGKILL))
                yield from self._agent_down(
                    chance.choice(self.schedule.nodes), how, chance.uniform(*AGENT_DOWN_SECONDS)
                )

        return [go_on()]

    def _agent_down(self, node: str, how: int, seconds: float) -> Coroutine:
        if node not in self.site.processes:
            return
        at, process = time.time(), self.site.signal(node, how)
        yield from _pause(seconds)
        yield from _until(lambda: process.poll() is not None, STOPS_SECONDS)
        process.kill()
        if node not in self.site.processes:
            self.site.start_agent(node)
        again_at = time.time()
        yield from _until(lambda: self.site.heard_at(node) > again_at, HEARD_SECONDS, every=2.0)
        self.note(row="event", job=None, kind="agent_down", at=at, until=time.time(), ranks=[], nodes=[node])

    def _load(self) -> Coroutine:
        """Note how many processes want a processor."""
        while True:
            self.note(row="load", at=time.time(), load=round(os.getloadavg()[0], 1))
            yield from _pause(LOAD_EVERY_SECONDS)

    def _standstills(self) -> Coroutine:
        """Note where a job made no step for some seconds: what nobody did to it, the busy machine did."""
        seen: dict[RunningJob, tuple[int, float]] = {}
        while True:
            for job in self.jobs:
                step, now = job.step(), time.time()
                before, since = seen.get(job, (0, now))
                if step != before and before and now - since > STILL_SECONDS:
                    self.note(row="event", job=job.plan.name, kind="busy", at=since, until=now, ranks=[], nodes=[])
                if step != before:
                    seen[job] = step, now
            yield from _pause(1.0)

    def _outage(self) -> list[Coroutine]:
        if self.schedule.service_down is None:
            return []

        def go_on(after: float, seconds: float) -> Coroutine:
            yield from _pause(after)
            yield from self._service_down(seconds)

        return [go_on(*self.schedule.service_down)]

    def _service_down(self, seconds: float) -> Coroutine:
        at, process = time.time(), self.site.signal("service")
        yield from _pause(seconds)
        yield from _until(lambda: process.poll() is not None, STOPS_SECONDS)
        process.kill()
        self.site.start_service()
        yield from _until(self.site.answers, HEARD_SECONDS, every=2.0)
        self.note(row="event", job=None, kind="service_down", at=at, until=time.time(), ranks=[], nodes=[])


def _inflict(job: RunningJob, kind: str, ranks: list[int]) -> None:
    if kind in {"stop", "stop_all"}:
        job.signal_ranks(ranks, signal.SIGSTOP)
    elif kind == "kill_rank":
        job.signal_ranks(ranks, signal.SIGKILL)
    elif kind == "kill":
        job.signal_launchers(signal.SIGTERM)
    elif kind == "ctrl_c":
        job.signal_launchers(signal.SIGINT, group=True)
    elif kind == "time_limit":
        job.signal_all(signal.SIGTERM)


def _goes_on(one: Coroutine) -> bool:
    return next(one, StopIteration) is not StopIteration


def _until(holds: Callable[[], bool], seconds: float, every: float = 0.0) -> Coroutine:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        again_at = time.monotonic() + every
        yield
        while time.monotonic() < again_at:
            yield


def _pause(seconds: float) -> Coroutine:
    yield from _until(lambda: False, seconds)


def _clock() -> str:
    return time.strftime("%H:%M:%S", time.gmtime())
