"""What an inference engine reports of itself as Prometheus text: vLLM's and SGLang's requests and tokens, NIXL's transfers.

From ``curl http://HOST:PORT/metrics``. Engines of one text add up (data-parallel ones); a tensor-parallel engine's ranks each
report the same, which counts once. SGLang adds a request's tokens when it ends, unless it reports ``realtime_tokens_total`` too:
until then the tokens of running requests are not known, and one long generation is no standstill. [metrics_collector.py, 0.5]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from collectors.formats import Input, reader
from collectors.formats.series_table import SERIES_LIMIT, not_read, sample_of
from collectors.formats.text_lines import lines as text_lines
from collectors.records import Record, RoleState

MARKS = (
    b"\nvllm:",
    b"\nsglang:",
    b"\n# HELP vllm:",
    b"\n# HELP sglang:",
    b"\nagent_tx_bytes",
    b"\n# HELP agent_tx_bytes",
)
PREFIXES = ("vllm:", "sglang:", "agent_tx_requests_num", "agent_rx_requests_num")
MOST = (1 << 63) - 1
_SAME_OF_ALL = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
_FIELDS = {
    "vllm:num_requests_running": "requests_running",
    "vllm:num_requests_waiting": "requests_waiting",
    "vllm:generation_tokens_total": "tokens_total",
    "sglang:num_running_reqs": "requests_running",
    "sglang:num_queue_reqs": "requests_waiting",
    "sglang:realtime_tokens_total": "tokens_total",
    "sglang:generation_tokens_total": "tokens_of_ended",
    "agent_tx_requests_num": "steps_total",
    "agent_tx_requests_num_total": "steps_total",
    "agent_rx_requests_num": "steps_total",
    "agent_rx_requests_num_total": "steps_total",
}

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass(slots=True)
class EngineReadings:
    """What a text holds, by field of ``RoleState``; ``damaged``: lines that are no series."""

    values: dict[str, int] = field(default_factory=dict)
    damaged: int = 0


def gather(lines: Iterable[str]) -> EngineReadings:
    """Read an engine's lines; a line that is damaged costs itself, one of another exporter nothing."""
    series: dict[Series, float] = {}
    gathered, seen = EngineReadings(), 0
    for line in lines:
        if not line.startswith(PREFIXES) or line[: line.find("{")].strip() not in _FIELDS:
            continue
        seen += 1
        if seen > SERIES_LIMIT:
            break
        try:
            sample = sample_of(line)
        except ValueError:
            gathered.damaged += 1
            continue
        if sample.labels.get("mode", "decode") == "decode" and 0 <= sample.value < MOST:
            key = sample.name, frozenset(item for item in sample.labels.items() if item[0] not in _SAME_OF_ALL)
            series[key] = max(series.get(key, 0.0), sample.value)
    gathered.values = _added(series)
    return gathered


def _added(series: Mapping[Series, float]) -> dict[str, int]:
    found: dict[str, float] = defaultdict(float)
    for (name, _), value in series.items():
        found[_FIELDS[name]] += value
    ended = found.pop("tokens_of_ended", None)
    if ended is not None and "tokens_total" not in found and found.get("requests_running") == 0:
        found["tokens_total"] = ended
    return {name: int(value) for name, value in found.items() if value < MOST}


def _sniff(head: bytes, _source: str) -> int:
    whole = b"\n" + head
    return 92 if any(mark in whole for mark in MARKS) else 0


@reader(
    "engine_metrics",
    made_by="curl http://127.0.0.1:8000/metrics",
    gives="requests that run and wait, and tokens generated, of a vLLM or SGLang server",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one reading, of the instant at which the file was written; which instance it is of, its path shows."""
    gathered = gather(text for _, text in text_lines(input.stream))
    number = input.rank if input.number is None else input.number
    if gathered.values:
        yield RoleState(
            source=input.source, at=input.at, node=input.node, rank=number,
            instance="" if number is None else str(number), **gathered.values,  # type: ignore[arg-type]
        )  # fmt: skip
    yield from not_read(input, 0, gathered.damaged)
