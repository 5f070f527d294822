"""What Slurm prints, read: recorded outputs of 22.05, hostile names and reasons, and commands that hang, fail or babble."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.adapters.scheduler import CommandRefused, SchedulerAway
from service.adapters.slurm import slurm_commands as commands
from service.adapters.slurm import slurm_output as output
from service.adapters.slurm.slurm_commands import Slurm
from service.adapters.slurm.slurm_output import Unreadable
from tests.support.bounds import in_time

HEAD = (
    "NodeName=gpu1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 CPUTot=1 CPULoad=13.33 AvailableFeatures=(null) "
    "NodeAddr=127.0.0.1 NodeHostName=vm Port=33781 Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  "
    "RealMemory=1000 Sockets=1 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A "
    "Partitions=all  BootTime=1795294143 CfgTRES=cpu=1,mem=1000M,billing=1 AllocTRES= CapWatts=n/a "
    "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s"
)
MARK = output.mark("inc-0123456789ab", "rem-0123456789ab")


@pytest.mark.parametrize(
    ("state", "tail", "flags", "reason", "by"),
    [
        ("ALLOCATED", "", {"ALLOCATED"}, "", ""),
        ("ALLOCATED+DRAIN", " Reason=fan is loud [ann@1795294143]", {"ALLOCATED", "DRAIN"}, "fan is loud", "ann"),
        ("IDLE+DRAIN", ' Reason=a "quoted" [x@y] \\ | two [root@1795294143]        lines', {"IDLE", "DRAIN"},
         'a "quoted"', "x"),
        ("DOWN*+DRAIN", f" Reason={MARK} it [is] stopped [root@2026-11-21T20:41:26]", {"DOWN", "DRAIN"},
         f"{MARK} it [is] stopped", "root"),
        ("IDLE+NOT_RESPONDING", "", {"IDLE", "NOT_RESPONDING"}, "", ""),
        ("DOWN", " Reason=Not responding [slurm@1795294143] Comment=bought in May", {"DOWN"}, "Not responding", "slurm"),
        ("MIXED+PLANNED", " Reason=without a name", {"MIXED", "PLANNED"}, "without a name", ""),
    ],
)  # fmt: skip
def test_nodes(state: str, tail: str, flags: set[str], reason: str, by: str) -> None:
    """State, reason and whose it is are read, whatever the reason holds."""
    node = output.node(HEAD.format(state=state) + tail, "gpu1")

    assert (set(node.flags), node.reason, node.by, node.drained) == (flags, reason, by, "DRAIN" in flags)


@pytest.mark.parametrize("text", ["", "Node gpu1 not found", HEAD.format(state="IDLE").replace("gpu1", "gpu2", 1)])
def test_what_is_not_that_node_is_refused(text: str) -> None:
    """Another node's line, or none, is never taken for the one that was asked for."""
    with pytest.raises(Unreadable):
        output.node(text, "gpu1")


@pytest.mark.parametrize("name", ["ALL", "all", "gpu[0-3]", "gpu0,gpu1", "-a", "", "gpu 1", "gpu1\n", "gpu1=x", "../x"])
def test_names_that_stand_for_more_than_one_node(name: str) -> None:
    """A node that an agent calls by Slurm's word for all, or by a host list, is no node of Slurm's."""
    assert not output.is_plain(name)
    assert Slurm().node(name) is None


def test_jobs() -> None:
    """Fields are read by place, and the name, which its user chose, is all that is left."""
    reported = (
        "2|PENDING|Nodes required for job are DOWN, DRAINED or reserved|N/A|N/A||||two\n\n"
        "1|RUNNING|None|1795294131|1795297731|gpu7|gpu3|gpu[0-2]|lla|ma JobState=CANCELLED 405b\n"
    )
    waiting, running = output.jobs(reported)

    assert (waiting.state, waiting.nodes, waiting.started_at) == ("PENDING", (), None)
    assert (running.state, running.nodes, running.started_at) == ("RUNNING", ("gpu0", "gpu1", "gpu2"), 1795294131.0)
    assert (waiting.ended_at, running.ended_at) == (None, 1795297731.0)
    assert (running.required, running.excluded) == (("gpu7",), ("gpu3",))
    assert running.known_as == {"lla|ma JobState=CANCELLED 405b", "lla-ma-JobState-CANCELLED-405b-1"}


@pytest.mark.parametrize(
    "line", ["", "slurm_load_jobs error", "x|RUNNING|None|1|2||||n", "1|RUNNING|None|1|2|||gpu[0-|n"]
)
def test_odd_lines_of_squeue(line: str) -> None:
    """A line that is no job is nothing, or is refused by name; it is never half read."""
    if not line:
        assert output.jobs(line) == []
    else:
        with pytest.raises(Unreadable):
            output.jobs(line)


@pytest.mark.parametrize(
    ("reported", "why"),
    [
        ("7                   1   1   ", None),
        ("7                   1   0   ", "--no-requeue"),
        ("7                   0   1   ", "no batch job"),
    ],
)
def test_what_can_be_requeued(reported: str, why: str | None) -> None:
    """Only a batch job that was not submitted with --no-requeue can run again by itself."""
    found = output.requeueable(reported, "7")

    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize("reported", ["", "8 1 1", "7 1", "7 yes no"])
def test_what_is_not_told_of_requeueing_is_refused(reported: str) -> None:
    """Nobody is drained for a job of which this cannot be read."""
    with pytest.raises(Unreadable):
        output.requeueable(reported, "7")


def test_how_often_a_job_was_put_back() -> None:
    """The job's own line tells; what is another's, or no number, is refused."""
    assert output.restarts("6                   1           \n7                   2           \n", "7") == 2
    for reported in ("", "6 1", "7", "7 often"):
        with pytest.raises(Unreadable):
            output.restarts(reported, "7")


def test_the_controllers_clock() -> None:
    """Its seconds are read, in whichever language the date before them is; what tells none is refused."""
    line = "*" * 55
    reported = (
        f"{line}\nsdiag output at Sun Nov 22 00:09:21 2026 (1795306161)\n"
        f"Data since      Sun Nov 22 00:07:36 2026 (1795306056)\n{line}\n"
    )
    assert output.clock(reported) == 1795306161.0
    for other in ("", line, reported.replace("sdiag output", "output"), reported.replace("1795306161", "now")):
        with pytest.raises(Unreadable):
            output.clock(other)


@given(st.text(max_size=400))
def test_a_reason_is_one_short_plain_line(why: str) -> None:
    """Whatever a verdict says, the reason begins with our mark, fits, and means nothing to Slurm's own parser."""
    reason = output.reason("inc-0123456789ab", "rem-0123456789ab", why)

    assert reason.startswith(MARK)
    assert len(reason) <= output.LONGEST_REASON
    assert reason.isascii()
    assert reason.isprintable()
    assert not set(reason) & set("\"'\\|`$")


@given(st.text(max_size=300))
def test_no_output_of_squeue_crashes_the_reader(text: str) -> None:
    """Garbage is refused as such."""
    with suppress(CommandRefused):
        output.jobs(text)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that is scontrol and squeue, to be filled with a shell script."""
    file = tmp_path / "bin" / "scontrol"
    file.parent.mkdir()
    monkeypatch.setenv("PATH", f"{file.parent}:{os.environ['PATH']}")
    return file


def write(tool: Path, script: str) -> None:
    """Let the commands be this script."""
    for name in ("scontrol", "squeue"):
        path = tool.with_name(name)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)


@pytest.mark.system
def test_a_command_that_hangs_is_ended(tool: Path) -> None:
    """A controller that does not answer costs a bounded time, and nothing is taken as an answer."""
    write(tool, "exec sleep 300")
    began = time.monotonic()
    with pytest.raises(SchedulerAway, match=r"did not answer within 1 s"):
        Slurm(1.0).node("gpu1")
    assert in_time(time.monotonic() - began, 10)


@pytest.mark.system
def test_what_a_command_has_started_is_ended_with_it(tool: Path, tmp_path: Path) -> None:
    """Where scontrol is a script, what it calls does not act after we have given it up."""
    acted = tmp_path / "acted"
    write(tool, f"(sleep 1; touch {acted}) & wait")
    with pytest.raises(SchedulerAway):
        Slurm(0.3).change(commands.requeue("7"))
    time.sleep(1.5)
    assert not acted.exists()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("slurm_load_node error: Unable to contact slurm controller (connect failure)", SchedulerAway),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", SchedulerAway),
        ("slurm_update error: Access/permission denied", CommandRefused),
        ("scontrol: fatal: Could not establish a configuration source", CommandRefused),
    ],
)
def test_being_away_is_not_a_refusal(tool: Path, said: str, kind: type[Exception]) -> None:
    """What is over when the controller is back is distinguished from what will never be done."""
    write(tool, f"echo '{said}' >&2; exit 1")
    with pytest.raises(kind, match=r"error|fatal"):
        Slurm().change(commands.requeue("7"))


def test_a_command_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Slurm's commands are not installed, that is what is said."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandRefused, match=r"scontrol cannot be run .*slurm-client"):
        Slurm().change(commands.requeue("7"))


def test_a_command_that_babbles(tool: Path) -> None:
    """Bytes that are no text, and a job that was not asked for, are refused and not believed."""
    write(tool, r"printf '\377\376 State=IDLE'")
    with pytest.raises(Unreadable):
        Slurm().node("gpu1")
    with pytest.raises(Unreadable):
        Slurm().job("7")
    write(tool, "echo '8|RUNNING|None|1795294131|N/A||||other'")
    assert Slurm().job("7") is None


def test_commands_reach_slurm_as_they_are(tool: Path, tmp_path: Path) -> None:
    """A reason is one argument, whatever is in it: no shell comes between."""
    write(tool, f'for word in "$@"; do echo "$word"; done >{tmp_path / "said"}')
    Slurm().change(commands.drain("gpu1", "faulthound; touch $HOME `x` 'y'"))

    reported = (tmp_path / "said").read_text().splitlines()
    assert reported == ["update", "NodeName=gpu1", "State=DRAIN", "Reason=faulthound; touch $HOME `x` 'y'"]
