"""The service's own numbers, in a registry of its own: what it counts itself, and what its parts have counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.clock import PROCESS

if TYPE_CHECKING:
    from service.api.state import Service
    from service.engine.supervision import EngineProcess

ACKNOWLEDGED_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 5.0)
PREFIX = "faulthound_"


class Metrics:
    """What requests count."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._batches = self._counter("ingest_batches_total", "Batches that were acknowledged.", ["duplicate"])
        self._records = self._counter("ingest_records_total", "Records of batches that were stored.")
        self._malformed = self._counter(
            "ingest_malformed_records_total", "Records of stored batches that no reader can use."
        )
        self._bytes = self._counter("ingest_bytes_total", "Bytes of batches that were stored, packed.")
        self._requests = self._counter("requests_total", "Requests by route and status.", ["route", "method", "status"])
        self._seconds = Histogram(
            f"{PREFIX}ingest_seconds", "From the first byte of a batch to its acknowledgement.",
            buckets=ACKNOWLEDGED_SECONDS, registry=self._registry,
        )  # fmt: skip

    def took(self, records: int, size_bytes: int, malformed: int = 0, *, duplicate: bool) -> None:
        """Count a batch that was acknowledged."""
        self._batches.labels(str(duplicate).lower()).inc()
        if not duplicate:
            self._records.inc(records)
            self._malformed.inc(malformed)
            self._bytes.inc(size_bytes)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answer; ``route`` is a route's template and never a path, of which there is no end."""
        self._requests.labels(route, method, str(status)).inc()
        if route == "/v1/records" and status == 202:
            self._seconds.observe(seconds)

    def text(self, service: Service) -> bytes:
        """Return all numbers as Prometheus text."""
        parts = CollectorRegistry()
        parts.register(_Parts(service))
        return generate_latest(self._registry) + generate_latest(parts)

    def _counter(self, name: str, what: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(f"{PREFIX}{name}", what, tuple(labels), registry=self._registry)


class _Parts(Collector):
    """What the service's parts have counted, read when it is asked for."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield each number."""
        service = self._service
        batches, size_bytes = service.appender.waiting
        appended, followed = service.appender.counts, service.follower.counts
        yield _gauge("queue_batches", "Batches that wait for the log.", batches)
        yield _gauge("queue_bytes", "Bytes that wait for the log.", size_bytes)
        yield _gauge("arriving_bytes", "Bytes of bodies that are arriving or waiting.", service.intake.arriving_bytes)
        yield _gauge("connections", "Connections that are open.", service.connections.open)
        closed = CounterMetricFamily(
            f"{PREFIX}connections_closed",
            "Connections closed: too many of an address or of all, no head in time, too large a head, more than one request "
            "that waits, bytes that are no request, or an answer that was not read.",
            labels=["reason"],
        )
        for reason, count in service.connections.closed.items():
            closed.add_metric([reason], count)
        yield closed
        slowed = CounterMetricFamily(
            f"{PREFIX}ingest_slowed", "Batches refused because their sender was over a rate.", labels=["setting"]
        )
        for setting, count in service.intake.slowed.items():
            slowed.add_metric([setting], count)
        yield slowed
        yield _gauge("waiting_polls", "Agents that wait for a command.", service.waiting.count)
        yield _gauge(
            "follower_lag_seconds", "Age of the oldest batch that is not yet derived.", service.follower.lag_seconds
        )
        yield _gauge("follower_sequence", "The newest batch that is derived.", service.follower.sequence)
        yield _counter("commits_total", "Commits of the log.", appended.commits)
        yield _counter("commits_failed_total", "Commits that the database refused.", appended.failed_commits)
        yield _counter("commit_seconds_total", "Seconds in commits of the log.", appended.commit_seconds)
        yield _counter("queue_refused_total", "Batches refused because the queue was full.", appended.refused)
        yield _counter("followed_batches_total", "Batches that were derived.", followed.batches)
        yield _counter(
            "undecodable_batches_total", "Stored batches that cannot be decoded.", followed.undecodable_batches
        )
        yield _counter("underivable_batches_total", "Stored batches that broke a rule.", followed.underivable_batches)
        yield _counter("unknown_records_total", "Stored records of unknown kinds.", followed.unknown_records)
        yield _counter("malformed_records_total", "Stored records that no reader can use.", followed.malformed_records)
        observed = service.follower.observations
        yield _counter(
            "observations_left_out_total",
            "Placements and devices past a batch's or a node's bounds.",
            observed.left_out,
        )
        yield _gauge("observed_rows", "Rows of nodes, jobs, attempts and placements in memory.", observed.rows)
        yield _counter(
            "consumer_failures_total", "Batches that a reader of samples left out.", followed.consumer_failures
        )
        yield _gauge("clock_ahead_seconds", "The wall clock less the service's time.", PROCESS.ahead_seconds)
        yield _gauge(
            "clock_sure", "Whether the service's clock is certain: else nothing goes for its age.", PROCESS.is_sure
        )
        if service.engine is not None:
            yield from _of_engine(service.engine)
        refusals = CounterMetricFamily(f"{PREFIX}refusals", "Refused requests by kind of event.", labels=["kind"])
        for kind, count in sorted(service.audit.refusals.items()):
            refusals.add_metric([kind], count)
        yield refusals


def _of_engine(engine: EngineProcess) -> Iterator[Metric]:
    """Yield the numbers of this service's engine, at most a second old; they restart with its process."""
    numbers = engine.numbers
    yield _gauge("engine_up", "Whether the engine's process runs.", engine.pid is not None)
    yield _gauge("engine_working", "Whether this service's engine holds the lease.", numbers.working)
    yield _counter("engine_starts_total", "Starts of the engine's process.", engine.starts)
    yield _gauge("engine_sequence", "The newest batch that the engine has processed.", numbers.sequence)
    yield _gauge("engine_lag_seconds", "Age of the oldest batch that the engine has not seen.", numbers.lag_seconds)
    yield _gauge("engine_open_incidents", "Incidents that are open.", numbers.open_incidents)
    yield _counter("engine_batches_total", "Batches that the engine has processed.", numbers.batches)
    yield _counter("engine_undecodable_batches_total", "Batches that it could not read.", numbers.undecodable_batches)
    yield _counter("engine_step_failures_total", "Events that broke a rule and were left out.", numbers.step_failures)
    yield _counter("engine_left_out_total", "Records and decisions that failed alone.", numbers.left_out)
    yield _gauge("engine_evidence_bytes", "Records kept for judgements, packed.", numbers.evidence_bytes)
    yield _counter("engine_shed_records_total", "Records given up for want of memory.", numbers.shed_records)
    yield _counter("engine_write_failures_total", "Decisions that the database refused.", numbers.write_failures)
    yield _counter("engine_ticks_total", "Ticks: evaluations of all jobs.", numbers.ticks)
    yield _counter("engine_tick_seconds_total", "Seconds in those ticks.", numbers.tick_seconds)
    yield _gauge("engine_longest_tick_seconds", "The longest of them.", numbers.longest_tick_seconds)
    yield _counter("engine_judgements_total", "Judgements that ended.", numbers.judgements)
    yield _counter(
        "engine_judgement_seconds_total", "Seconds from their requests to their ends.", numbers.judge_seconds
    )
    yield _counter("engine_judgement_failures_total", "Analyzers that crashed or did not end.", numbers.judge_failures)
    yield _counter("engine_proposals_total", "Verdicts that led to a plan.", numbers.proposals)
    yield _gauge("engine_remediations", "Remediations that have not ended.", numbers.remediations)
    yield _counter("engine_remedy_failures_total", "Passes over remediation that broke off.", numbers.remedy_failures)
    yield _counter("engine_takeovers_total", "Times that this engine took the lease.", numbers.takeovers)


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}{name}", what, value)


def _counter(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(f"{PREFIX}{name.removesuffix('_total')}", what, value)
