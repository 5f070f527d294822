"""A kill that the kernel and the launcher both report is one incident."""

from __future__ import annotations

import pytest

from analyzers.model.topology import infer
from analyzers.model.verdict import Action, Culprit, Root, Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import KernelEvent, LogEvent
from service.packaged_knowledge import load
from service.reports import story

AT = 1_790_000_000.0


def _ended(rank: int | None, node: str | None) -> LogEvent:
    return LogEvent(
        event="torchrun_failure", rank=rank, local_rank=3, node=node, pid=4103, signal=9, exit_code=-9, first=True, at=AT + 1,
        text="exitcode -9 (pid: 4103)", source="job.log:9",
    )  # fmt: skip


def _killed(node: str | None, pid: int = 4103, at: float | None = AT) -> KernelEvent:
    return KernelEvent(
        event="oom_kill",
        pid=pid,
        process="python3",
        node=node,
        at=at,
        text=f"Killed process {pid}",
        source="kern.log:2",
    )


@pytest.mark.parametrize("rank", [3, None])
@pytest.mark.parametrize(("of_launcher", "of_kernel"), [("n1", "n1"), ("n1", None), (None, "n1"), (None, None)])
@pytest.mark.parametrize("at", [AT, None])
def test_one_kill_has_one_headline(
    rank: int | None, of_launcher: str | None, of_kernel: str | None, at: float | None
) -> None:
    """Whichever of them leaves out the node, the rank or the time: both rest on the kernel's line about that process."""
    window = Window.build([_ended(rank, of_launcher), _killed(of_kernel, at=at)])
    verdict = judge(window, infer(window), load())

    assert [root.fault_class for root in verdict.roots] == ["host_oom"]
    assert len(story.headlines(verdict)) == 1


def test_a_kill_of_another_process_is_another_incident() -> None:
    """The control: another number, on a node that no line names, explains nothing of this rank."""
    window = Window.build([_ended(3, "n1"), _killed(None, pid=77)])
    verdict = judge(window, infer(window), load())

    assert "host_oom" not in [root.fault_class for root in verdict.roots]


@pytest.mark.parametrize(
    ("families", "says"),
    [
        (
            ("process", "log"),
            "Rank 3 (node n1) was killed (SIGKILL) and nothing read shows by whom: its node is suspected (75 %)",
        ),
        (("process", "hardware"), "Node n1 (rank 3) brought the job down: likely (75 %)"),
    ],
)
def test_a_kill_by_an_unknown_sender_is_called_that(families: tuple[str, ...], says: str) -> None:
    """A person, a scheduler and a limit of memory kill as well: only a record of its hardware lets its node be the doer."""
    verdict = Verdict(
        symptom="crash", cause="machine", abstained=False, version="", knowledge="", action=Action(kind="probe"),
        roots=(Root(root="r1", cause="machine", fault_class="process_killed", families=families),),
        culprits=(Culprit(root="r1", kind="node", id="n1", ranks=(3,), probability=0.75),),
    )  # fmt: skip
    assert str(story.headlines(verdict)[0]) == says
