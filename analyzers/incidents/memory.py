"""How the engine's memory grows and shrinks. It decides nothing, so the log can be observed again after a restart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from analyzers.incidents.code_versions import change_code, compare_with_before
from analyzers.incidents.evidence import Evidence, concerns_job
from analyzers.incidents.fleet.node_activity import NodeActivity
from analyzers.incidents.hosting import Hosting
from analyzers.incidents.job_views import JobView, RoleReadings
from analyzers.incidents.messages import Declared, Received, attributed
from analyzers.incidents.rank_maps import own_ranks
from analyzers.incidents.recurrence import note_standstill
from analyzers.incidents.shedding import count_evidence, shed_evidence, shed_evidence_of_jobs
from analyzers.incidents.state import FORGOTTEN_SECONDS, LOOKBACK_SECONDS, ROLES_LOOKBACK_SECONDS, EngineState, JobKey
from analyzers.model.incident import Incident
from collectors.records import LogEvent, Placement, Record, RoleState, Steps, directory_sender, is_directory

MARK_SECONDS = 10.0
MOST_NODES = 1 << 16  # names: a token that is bound to none may invent them
MOST_JOBS = 1 << 14  # attempts of all nodes, some ten kilobytes each
CROWDED_SECONDS = 300.0  # without a report, after which names and attempts leave where a quarter of their room is left
MOST_JOBS_ON_A_NODE = 64  # attempts: a new one replaces one that has ended; further ones are left out
LAST_WORDS_SECONDS = 30.0  # after the end of a job until its logs have been read: agents read them every five
ENDED_SECONDS = 60.0  # agents report running jobs every ten


def observe_batch(state: EngineState, event: Received) -> None:
    """Add a batch to the memory; decide nothing. What a part of the memory cannot take costs that part alone."""
    if event.sequence and event.sequence <= state.sequence:
        return  # seen before: the log is read again from an earlier place
    event = attributed(event)
    _mark(state, event)
    if is_directory(event.node):
        _apart(state, event, partial(_keep, state))
        _apart(state, event, partial(_take_roles, state))
        return
    seen = state.nodes.get(event.node)
    if seen is None:
        if len(state.nodes) >= MOST_NODES:
            _note(state, event, "", f"{MOST_NODES:,} nodes are known, the most")
            return
        seen = state.nodes[event.node] = NodeActivity(event.received_at)
    _apart(state, event, seen.take)
    _apart(state, event, state.fleet.take)
    _apart(state, event, partial(_keep, state))
    of_jobs: dict[str, list[Record]] = defaultdict(list)
    for record in event.records:
        if record.job is not None:
            of_jobs[record.job].append(record)
    for job, records in of_jobs.items():
        _apart(state, event, partial(_take_part, state, job, records))
    for key in state.jobs_on.get(event.node, ()):
        _apart(state, event, partial(_concern, state, key))


def _apart(state: EngineState, event: Received, take: Callable[[Received], None]) -> None:
    try:
        take(event)
    except Exception as error:  # noqa: BLE001 - one odd record must not take the batch from the other parts
        _note(state, event, "", error)


def _note(state: EngineState, event: Received, job: str, error: Exception | str) -> None:
    state.note_failure("apply", f"{event.node}, job {job}" if job else event.node, error)
    if not is_directory(event.node):
        state.fleet.note_unreadable(event.node, event.received_at)


def _keep(state: EngineState, event: Received) -> None:
    evidence = state.evidence.get(event.node)
    if evidence is None:
        evidence = state.evidence[event.node] = Evidence(state.limits.node_bytes)
    before = evidence.size_bytes
    state.shed_records += evidence.add(event.sequence, event.records)
    state.evidence_bytes += evidence.size_bytes - before
    shed_evidence(state)


def _concern(state: EngineState, key: JobKey, event: Received) -> None:
    """Apply a batch to an attempt: what of it concerns that, and its node may say."""
    records = list(_concerning(state.hosting[key[0]], event, key))
    views = (state.jobs[one] for one in state.jobs_on[event.node] if one in state.jobs)
    writing = {view.job for view in views if _may_write(view, event.received_at)}
    if writing and writing != {key[0]}:  # whose log it was is not known, or it is another's
        records = [record for record in records if record.job is not None or not isinstance(record, LogEvent | Steps)]
    for why in state.jobs[key].take(event, records):
        _note(state, event, key[0], why)
    state.changed.add(key)


def _may_write(view: JobView, now: float) -> bool:
    """Whether a job's logs may still grow: it runs, or its last words may not have been read yet."""
    last_at = max((end.at for end in view.ended.values()), default=now)
    return bool(view.processes.alive) or now <= last_at + LAST_WORDS_SECONDS


def _take_roles(state: EngineState, event: Received) -> None:
    """Apply what a job's directory reports of its roles."""
    found = [record for record in event.records if isinstance(record, RoleState)]
    for job in {record.job for record in found if record.job is not None}:
        readings = state.roles.setdefault(job, RoleReadings())
        for record in found:
            readings.take(record, event.received_at)
        if (hosting := state.hosting.get(job)) is not None:
            hosting.vouch(readings.named_nodes(), event.received_at)
        state.changed |= {key for key in state.jobs if key[0] == job}


def _take_part(state: EngineState, job: str, records: Sequence[Record], event: Received) -> None:
    """Place a node in a job where it hosts a rank of it, and those nodes that may now."""
    hosting = state.hosting.get(job) or _hosting(state, job, event.received_at)
    hosting.take(event.node, records, event.received_at)
    admitted, hosting.admitted = hosting.admitted, []
    for node in admitted:
        key, claim = (job, hosting.attempt), hosting.claims[node]
        if node != event.node and _place(state, key, node, event.received_at) and claim.placement is not None:
            # It said so while the attempt was still another.
            late = replace(event, node=node, sent_at=None, received_at=claim.seen_at, records=(claim.placement,))
            state.jobs[key].take(late, list(_concerning(hosting, late, key)))
    for attempt in {record.attempt for record in records}:
        key = (job, attempt)
        if hosting.is_host(event.node, attempt) and _place(state, key, event.node, event.received_at):
            state.hosting[job] = hosting
            state.reported_at[key] = max(event.received_at, state.reported_at.get(key, 0.0))


def _hosting(state: EngineState, job: str, at: float) -> Hosting:
    hosting = Hosting(state.claimed)
    if (declared := state.declared.get(job)) is not None:
        hosting.declare(declared.attempt, declared.nodes, at)
    for (name, attempt), (known_at, nodes) in state.hosts_before.items():
        if name == job:
            hosting.know(attempt, nodes, known_at)
    if (readings := state.roles.get(job)) is not None:
        hosting.vouch(readings.named_nodes(), at)
    return hosting


def remember_declared(state: EngineState, declared: Declared) -> None:
    """Replace the scheduler's word on a job."""
    before = state.declared.get(declared.job)
    if declared.version:
        state.declared[declared.job] = declared
    else:
        state.declared.pop(declared.job, None)
    if before is not None and before.code_version != declared.code_version:
        change_code(state, before, declared)
    if (hosting := state.hosting.get(declared.job)) is not None:
        hosting.declare(declared.attempt, declared.nodes, state.now)


def _concerning(hosting: Hosting, event: Received, key: JobKey) -> Iterator[Record]:
    """Yield what a batch says of an attempt and its node may say."""
    foreign = hosting.refused(event.node, key[1])
    for record in event.records:
        if concerns_job(record, *key) and not hosting.is_hearsay(record, event.node, key[1]):
            yield own_ranks(record, foreign) if foreign and isinstance(record, Placement) else record


def _mark(state: EngineState, event: Received) -> None:
    """Remember how far the log had come: an incident's records begin some minutes before its opening."""
    if not state.marks or event.received_at - state.marks[-1][0] >= MARK_SECONDS:
        state.marks.append((event.received_at, state.sequence))
    while len(state.marks) > 1 and state.marks[1][0] < event.received_at - ROLES_LOOKBACK_SECONDS - LOOKBACK_SECONDS:
        state.marks.popleft()
    state.sequence = max(state.sequence, event.sequence)


def _place(state: EngineState, key: JobKey, node: str, at: float) -> bool:
    here = state.jobs_on.setdefault(node, set())
    if key in here:
        return True
    if key not in state.jobs and len(state.jobs) >= MOST_JOBS:
        state.note_failure("apply", f"{node}, job {key[0]}", f"{MOST_JOBS:,} attempts are known, the most")
        return False
    if len(here) >= MOST_JOBS_ON_A_NODE:
        oldest = min(here, key=lambda known: (state.reported_at.get(known, 0.0), str(known)))
        if state.reported_at.get(oldest, 0.0) > at - ENDED_SECONDS:
            return False
        here.discard(oldest)
    here.add(key)
    if key not in state.jobs:
        state.jobs[key] = JobView(*key, state.knowledge, state.roles.setdefault(key[0], RoleReadings()), state.viewed)
        take_learned(state, key)
        compare_with_before(state, state.jobs[key])
    return True


def take_learned(state: EngineState, key: JobKey) -> None:
    """Give an attempt's view what an earlier engine had learned of it; what cannot be read costs itself."""
    document, view = state.learned.pop(key, None), state.jobs.get(key)
    if document is not None and view is not None:
        try:
            view.restore(document)
        except (ValueError, TypeError, AttributeError) as error:
            state.note_failure("restore", f"job {key[0]}", error)


def remember_incident(state: EngineState, incident: Incident) -> None:
    """Replace what is known of an open incident."""
    state.incidents[incident.id] = incident
    note_standstill(state, incident)


def context_records(state: EngineState, incident: Incident) -> tuple[Record, ...]:
    """Return the context from before an incident's records begin."""
    found = [
        record
        for node in (*incident.nodes, directory_sender(incident.job or ""))
        if node in state.evidence
        for record in state.evidence[node].context(incident.after)
        if concerns_job(record, incident.job, incident.attempt)
    ]
    return tuple(found)


def drop_incident(state: EngineState, id: str, settled_at: float | None = None) -> None:
    """Drop an incident that is over; symptoms until ``settled_at``, by default now, open no new one."""
    incident = state.incidents.pop(id, None)
    if incident is not None and incident.job is not None:
        note_standstill(state, incident, state.now)
        state.settled[incident.job, incident.attempt] = max(
            state.now if settled_at is None else settled_at,
            state.settled.get((incident.job, incident.attempt), 0.0),
        )
    state.contexts.pop(id, None)
    state.waiting.pop(id, None)
    state.unanswered.pop(id, None)
    state.silent.pop(id, None)


def restore_incidents(state: EngineState, incidents: Iterable[tuple[Incident, tuple[Record, ...]]]) -> None:
    """Restore stored incidents with their contexts; the closed ones determine what is settled."""
    incidents = list(incidents)
    state.fleet.restore(incident for incident, _ in incidents)
    for incident, records in incidents:
        if incident.closed_at is not None:
            if incident.job is not None:
                note_standstill(state, incident, incident.closed_at)
                key = (incident.job, incident.attempt)
                state.settled[key] = max(incident.closed_at, state.settled.get(key, 0.0))
            continue
        # What was being judged is judged anew: newer records may have replaced older ones meanwhile.
        again = state.now if incident.cut is not None or incident.asked_at is not None else incident.judge_at
        state.incidents[incident.id] = replace(incident, cut=None, judge_at=again)
        state.contexts[incident.id] = records
        note_standstill(state, incident)


def forget_old(state: EngineState, now: float) -> None:
    """Drop evidence that no incident needs, and jobs and nodes that are reported no more."""
    needed: dict[str, int] = {}
    for incident in state.incidents.values():
        for node in (*incident.nodes, directory_sender(incident.job or "")):
            needed[node] = min(needed.get(node, incident.after), incident.after)
    through = state.mark_before(now - LOOKBACK_SECONDS)
    of_roles = state.mark_before(now - ROLES_LOOKBACK_SECONDS)
    for node, evidence in state.evidence.items():
        evidence.forget(min(of_roles if is_directory(node) else through, needed.get(node, through)))
    patience = _patience(len(state.nodes), MOST_NODES)
    for node in [name for name, seen in state.nodes.items() if now - seen.last_received_at > patience]:
        for of_node in (state.nodes, state.jobs_on):
            of_node.pop(node, None)
    running_jobs = {job for job, _attempt in state.jobs}
    state.roles = {
        job: readings
        for job, readings in state.roles.items()
        if job in running_jobs or now - readings.heard_at <= FORGOTTEN_SECONDS
    }
    known = {*state.nodes, *needed, *map(directory_sender, state.roles)}
    for node in [name for name in state.evidence if name not in known]:
        del state.evidence[node]
    count_evidence(state)
    shed_evidence_of_jobs(state)
    running = {key for keys in state.jobs_on.values() for key in keys}
    open_jobs = {(incident.job, incident.attempt) for incident in state.incidents.values()}
    for key in [key for key in state.jobs if key not in open_jobs and _forgotten(state, key, running, now)]:
        for of_job in (state.jobs, state.reported_at):
            of_job.pop(key, None)
        for keys in state.jobs_on.values():
            keys.discard(key)
    attempts: dict[str, list[int | None]] = defaultdict(list)
    for job, attempt in state.jobs:
        attempts[job].append(attempt)
    state.hosting = {job: hosting for job, hosting in state.hosting.items() if job in attempts}
    state.changed_code = {job: one for job, one in state.changed_code.items() if job in attempts}
    for job, hosting in state.hosting.items():
        hosting.forget(now - FORGOTTEN_SECONDS, attempts[job])
    _count_ranks(state)
    for key in [key for key, at in state.settled.items() if key not in state.jobs and now - at > FORGOTTEN_SECONDS]:
        del state.settled[key]


def _forgotten(state: EngineState, key: JobKey, running: set[JobKey], now: float) -> bool:
    patience = _patience(len(state.jobs), MOST_JOBS)
    return key not in running or now - state.reported_at.get(key, 0.0) > patience


def _patience(count: int, most: int) -> float:
    return FORGOTTEN_SECONDS if 4 * count < 3 * most else CROWDED_SECONDS


def _count_ranks(state: EngineState) -> None:
    """Give back the room of what was forgotten, and report the nodes that had none."""
    for name in sorted(state.viewed.refused | state.claimed.refused):
        state.note_failure("apply", name, "it has no room for more ranks")
    viewed, claimed = Counter[str](), Counter[str]()
    for view in state.jobs.values():
        for name, node in view.nodes.items():
            viewed[name] += node.ranks
    for hosting in state.hosting.values():
        for name, claim in hosting.claims.items():
            claimed[name] += len(claim.seats)
    state.viewed.recount(viewed)
    state.claimed.recount(claimed)
