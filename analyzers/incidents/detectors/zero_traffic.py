"""No bytes move over the job's ports and connections, in a job without other signs.

A job that is known by its traffic alone has no rhythm to learn: its pauses that verdicts explained set the bound.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.role_stalls import silence_counts_from, states_no_phase
from analyzers.incidents.job_views.step_rhythm import LONGEST_SECONDS, PAUSE_FACTOR
from analyzers.model.incident import Symptom
from analyzers.model.role_loops import TAIL_SECONDS

# Longer than an agent needs to report twice. ByteRobust waits for 600 s; here ranks that compute meanwhile count as alive, and
# nothing is evicted on this sign.
STILL_SECONDS = 60.0
UNHEARD_SECONDS = 60.0  # without a report from the reporters of steps, while other nodes report


@detector("zero_traffic")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a hang where the counters of every node stand still that have moved before."""
    del now
    traffic = view.traffic
    # The reporter of steps may be on an unreachable node: then the traffic of the others is the only sign.
    reports_steps = view.newest_step is not None and traffic.until - view.progress.until < UNHEARD_SECONDS
    if reports_steps or view.waits.rings or traffic.moved_at is None:
        return
    still = traffic.still_seconds
    since = silence_counts_from(view)
    if since is None or (states_no_phase(view) and still <= TAIL_SECONDS):
        return  # a tool call, or the tail of a step
    still -= max(0.0, since - traffic.moved_at)
    pauses = PAUSE_FACTOR * view.progress.standstills.usual_pause_seconds()
    bound = min(max(STILL_SECONDS, pauses), LONGEST_SECONDS)
    if still < bound or (view.ended and not view.processes.alive):
        return
    if view.witnesses.switches.goes_on(traffic.moved_at):  # ranks that compute for themselves
        return
    text = f"no bytes have moved over the job's ports and connections for {still:.0f} s (bound {bound:.0f} s)"
    yield Symptom(kind="hang", detector="zero_traffic", at=traffic.moved_at, text=text)
