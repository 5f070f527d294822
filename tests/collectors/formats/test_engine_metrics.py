"""What an engine reports of itself becomes one reading: sums of its engines, no copy twice, and no token that is not known."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from collectors.files.reading import read_paths
from collectors.formats import Input
from collectors.formats.engine_metrics import gather, read
from collectors.records import RoleState, Unread

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+06
vllm:generation_tokens_total{engine="1",model_name="m"} 500.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.79e+09
vllm:iteration_tokens_total_bucket{engine="0",le="8.0",model_name="m"} 9.0
process_start_time_seconds 1.79e+09
"""
SGLANG = """sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 5.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 5.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 1.0
sglang:generation_tokens_total{model_name="m"} 7000.0
"""
REALTIME = """sglang:realtime_tokens_total{dp_rank="0",mode="decode",model_name="m",tp_rank="0"} 800.0
sglang:realtime_tokens_total{dp_rank="0",mode="decode",model_name="m",tp_rank="1"} 810.0
sglang:realtime_tokens_total{dp_rank="1",mode="decode",model_name="m",tp_rank="2"} 90.0
sglang:realtime_tokens_total{dp_rank="0",mode="prefill_compute",model_name="m",tp_rank="0"} 123456.0
"""
NIXL = """# HELP agent_tx_requests_num_total Number of requests sent by the agent
agent_tx_requests_num_total{agent_name="a",category="NIXL_TELEMETRY_TRANSFER"} 12
agent_rx_requests_num_total{agent_name="a",category="NIXL_TELEMETRY_TRANSFER"} 30
agent_tx_bytes_total{agent_name="a",category="NIXL_TELEMETRY_TRANSFER"} 4194304
"""
CASES = {
    "vllm": (VLLM, {"requests_running": 7, "requests_waiting": 2, "tokens_total": 1_500_500}),
    "sglang, busy": (SGLANG, {"requests_running": 5, "requests_waiting": 1}),
    "sglang, idle": (
        SGLANG.replace(" 5.0", " 0.0"),
        {"requests_running": 0, "requests_waiting": 1, "tokens_total": 7000},
    ),
    "sglang, realtime": (SGLANG + REALTIME, {"requests_running": 5, "requests_waiting": 1, "tokens_total": 900}),
    "nixl": (NIXL, {"steps_total": 42}),
    "not a number": ('vllm:num_requests_running{engine="0"} NaN\n', {}),
    "negative, or beyond an integer": (
        'vllm:num_requests_running{engine="0"} -1\nvllm:generation_tokens_total 1e300\n',
        {},
    ),
    "another exporter's": ('vllm_router:num_requests_running{server="a"} 3\nup 1\n', {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_text_gives_requests_and_tokens(case: str) -> None:
    """Engines add up, ranks of one engine do not, and tokens of requests that still run are not guessed."""
    text, values = CASES[case]
    assert gather(text.split("\n")).values == values


def test_a_damaged_line_costs_itself() -> None:
    """The rest is read, and the damage reported."""
    data = (VLLM + 'vllm:num_requests_running{engine="2 4\n').encode()
    found = list(read(Input("metrics", io.BytesIO(data), data, at=5.0)))
    assert [one.requests_running for one in found if isinstance(one, RoleState)] == [7]
    assert [one.outcome for one in found if isinstance(one, Unread)] == ["damaged"]


def test_files_of_several_roles_state_whose_they_are(tmp_path: Path) -> None:
    """A saved scrape is known by its content, its role and instance by its name beside others."""
    (tmp_path / "rollout_3.prom").write_text(VLLM)
    (tmp_path / "trainer_0.log").write_text("step: 1 loss: 2.5\n")
    (found,) = (one for one in read_paths([tmp_path]) if isinstance(one, RoleState))
    assert (found.role, found.instance, found.rank, found.requests_running) == ("rollout", "3", 3, 7)
