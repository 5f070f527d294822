"""xpu_timer's gauges: a rank whose device has work that does not end waits, and only the few that have none are suspects."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from collectors.files.reading import read_paths
from collectors.records import LogEvent, Placement, Unread
from tests.support.command_line import faulthound


def scrape(standing: Iterable[int], size: int = 8, job: str = "job-1") -> str:
    """Return a node's metrics in which the gauge of these ranks is 1."""
    lines = ["# TYPE XPU_TIMER_COMMON_HANG gauge"]
    for rank in range(size):
        labels = f'ip="10.0.0.1",job_name="{job}",local_rank="{rank % 8}",pod_name="w-{rank // 8}",rank="{rank}"'
        lines.append(f"XPU_TIMER_COMMON_HANG{{{labels}}} {int(rank in set(standing))}")
        lines.append(f"XPU_TIMER_COMMON_POOL_QUEUE_SIZE{{{labels}}} 23")
    return "\n".join(lines) + "\n"


def verdict(text: str, folder: Path) -> Any:
    """Diagnose a folder that holds one scrape."""
    (folder / "metrics.prom").write_text(text)
    return json.loads(faulthound("diagnose", folder, "--json").stdout)


@pytest.mark.parametrize("standing", [{0, 2, 5}, set(range(8)), set()], ids=["some", "all", "none"])
def test_a_gauge_names_nobody_where_it_does_not_tell_one_rank_apart(standing: set[int], tmp_path: Path) -> None:
    """Three of eight wait, or all, or none: who is to blame is not shown."""
    assert not verdict(scrape(standing), tmp_path)["culprits"]


def test_the_one_rank_that_waits_for_no_device_is_tested(tmp_path: Path) -> None:
    """Seven wait on their devices for what the eighth has not launched: it is tested, and never evicted for that."""
    found = verdict(scrape(set(range(8)) - {4}), tmp_path)
    assert [culprit["ranks"] for culprit in found["culprits"]] == [[4]]
    assert found["symptom"] == "hang"
    assert found["action"]["kind"] == "probe"


def test_spoilt_lines_cost_themselves(tmp_path: Path) -> None:
    """A rank that is none, a value that is no gauge's and a cut line are counted; the others are read."""
    spoilt = (
        'XPU_TIMER_COMMON_HANG{rank="x"} 1\nXPU_TIMER_COMMON_HANG{rank="-1"} 1\nXPU_TIMER_COMMON_HANG{rank="9"} 7\n'
    )
    (tmp_path / "metrics.prom").write_text(scrape({1}) + spoilt + 'XPU_TIMER_COMMON_HANG{rank="3"')
    records = list(read_paths([tmp_path]))
    assert [record.rank for record in records if isinstance(record, LogEvent) and record.rank is not None] == [1]
    assert [len(record.nodes) for record in records if isinstance(record, Placement)] == [8]
    assert [record.outcome for record in records if isinstance(record, Unread)] == ["damaged"]
