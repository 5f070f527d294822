"""Remote mounts and clocks of a node: what answers, what answers with an error, what never answers."""

from __future__ import annotations

import math
import os
import select
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.live import Yielded
from collectors.live.host_load import HostLoad
from collectors.live.sources.host import Host, Roots
from collectors.live.sources.mounts import Mount, RemoteMounts, mounts
from collectors.records import Device, DeviceState, ProcessState
from tests.support.bounds import in_time
from tests.support.host_tree import MOUNTINFO, STAT, Clock, node, rows, run, write

# Mounts a file system that never answers, says so, and waits to be ended; its end answers everybody with an error.
HANGING = """
import ctypes, os, sys
device = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % device
if ctypes.CDLL(None).mount(b"filer:/export", os.fsencode(sys.argv[1]), b"fuse.testfs", 0, options):
    sys.exit("cannot mount")
print("mounted", flush=True)
sys.stdin.read()
"""


def look(collector: HostLoad) -> list[Yielded]:
    """One run half a minute later, in which every part is due."""
    collector._host.clock.at += 30  # type: ignore[attr-defined]
    return run(collector)


def test_mounts_are_reported_apart(tmp_path: Path) -> None:
    """Each file system once, where the node has it; what is in memory, automatic or served by this node is not remote."""
    write(tmp_path, {"proc/1/mountinfo": MOUNTINFO})

    found = mounts(tmp_path / "proc", tmp_path / "files")

    assert [one.point for one in found if one.local] == ["/", "/dev/shm"]
    (remote,) = [one for one in found if one.remote]
    assert remote == Mount("/data sets", tmp_path / "files/data sets", "nfs4", "filer:/export a")


def test_a_remote_mount_that_answers_is_timed_and_measured(tmp_path: Path) -> None:
    """What its child brings back is what statvfs says, with the seconds that it took and whose mount it is."""
    (tmp_path / "files/data sets").mkdir(parents=True)

    found = run(HostLoad(node(tmp_path, {"proc/1/mountinfo": MOUNTINFO})))

    assert rows(found, "mount")["/data sets"]["answer_seconds"] > 0
    assert in_time(rows(found, "mount")["/data sets"]["answer_seconds"], 3)
    asked = os.statvfs(tmp_path)
    assert rows(found, "filesystem")["/data sets"]["total_bytes"] == asked.f_blocks * asked.f_frsize
    device = next(one for one in found if isinstance(one, Device) and one.type == "mount")
    assert (device.id, device.name, device.attributes["type"]) == ("/data sets", "filer:/export a", "nfs4")
    assert [(one.device, one.state) for one in found if isinstance(one, DeviceState)] == [("/data sets", "ok")]


def test_a_mount_that_answers_with_an_error_is_reported_in_its_words(tmp_path: Path) -> None:
    """An answer that is an error is an answer in time; what the kernel said is kept, once."""
    collector = HostLoad(node(tmp_path, {"proc/1/mountinfo": MOUNTINFO}))

    found = look(collector)

    (state,) = [one for one in found if isinstance(one, DeviceState)]
    assert state.state == "unreadable"
    assert "No such file or directory" in state.text
    assert not math.isinf(rows(found, "mount")["/data sets"]["answer_seconds"])
    assert not [one for one in look(collector) if isinstance(one, DeviceState)]


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[Host, subprocess.Popen[str]]]:
    """A node with a real file system without a server, in a mount namespace that only its holder is in."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists() or not shutil.which("unshare"):
        pytest.skip("a file system that hangs needs root, /dev/fuse and unshare")
    point = tmp_path / "hanging"
    point.mkdir()
    holder = subprocess.Popen(
        ["unshare", "--mount", sys.executable, "-c", HANGING, str(point)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    try:
        if not select.select([holder.stdout], [], [], 30)[0] or holder.stdout.readline() != "mounted\n":
            pytest.skip("this machine does not let a FUSE file system be mounted")
        proc = tmp_path / "node/proc"
        proc.mkdir(parents=True)
        (proc / "1").symlink_to(f"/proc/{holder.pid}")
        (proc / "stat").write_text(STAT)
        roots = Roots(proc=proc, sys=tmp_path / "sys", files=Path(f"/proc/{holder.pid}/root"))
        yield Host("gpu-0001", roots, Clock(), {"host": {"mount_seconds": 0.5, "chronyc": "none"}}), holder
    finally:
        holder.kill()
        holder.communicate()


def test_a_mount_that_hangs_is_seen_and_holds_nothing_up(hanging: tuple[Host, subprocess.Popen[str]]) -> None:
    """It has an infinite answer; one child waits for it, ever; when its server has ended the child ends and is reported."""
    host, holder = hanging
    collector = HostLoad(host)
    point = next(one.point for one in mounts(host.roots.proc, host.roots.files) if one.type == "fuse.testfs")

    began = time.monotonic()
    found = look(collector)
    assert in_time(time.monotonic() - began, 5)
    assert rows(found, "mount")[point]["answer_seconds"] == math.inf
    assert [(one.device, one.state) for one in found if isinstance(one, DeviceState)] == [(point, "no_answer")]
    assert rows(found, "cpu")

    began = time.monotonic()
    for _ in range(5):
        assert rows(look(collector), "mount")[point]["answer_seconds"] == math.inf
    assert in_time(time.monotonic() - began, 2.5)  # nobody is sent, so nobody is waited for
    assert collector._remote.waiting == 1

    real = HostLoad(Host("gpu-0001"))
    waiting = [one for one in run(real) if isinstance(one, ProcessState)]
    assert [one.wait_channel for one in waiting if one.command == "stat"] != []

    holder.kill()
    holder.wait()
    until = time.monotonic() + 60
    while collector._remote.waiting and time.monotonic() < until:
        look(collector)
        time.sleep(0.05)
    assert collector._remote.waiting == 0


@pytest.mark.system
def test_a_slow_mount_does_not_delay_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two mounts are asked at the same time: the one that answers has its own time, the other none."""
    program = tmp_path / "bin/stat"
    write(tmp_path, {"bin/stat": '#!/bin/sh\ncase "$5" in *slow) exec sleep 30;; esac\necho 1 2 3 4 5 6\n'})
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    remote = RemoteMounts(answer_seconds=1.0)
    both = [Mount(f"/{name}", Path(f"/{name}"), "nfs4", "filer:/x") for name in ("slow", "fast")]

    found = {one.mount.point: one for one in remote.check(both)}

    assert (found["/slow"].state, found["/slow"].seconds) == ("no_answer", math.inf)
    assert found["/fast"].state == "ok"
    assert in_time(found["/fast"].seconds, 0.9)
    assert found["/fast"].sizes["total_bytes"] == 2
    for sent in remote._sent.values():
        sent.child.kill()
        sent.child.communicate()


def test_chronyd_is_asked_where_it_is(tmp_path: Path) -> None:
    """Its correction, error bound and whether it has a source stand beside the kernel's own account."""
    program = tmp_path / "chronyc"
    said = "A9FE7B7B,169.254.169.123,4,1763000000.1,-0.000012,0.000001,0.000002,1.5,0.0,0.1,0.0004,0.0002,16.1,Normal"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    clock = rows(run(HostLoad(node(tmp_path, chronyc=str(program)))), "clock")[""]

    assert clock["chrony_correction_seconds"] == -0.000012
    assert clock["chrony_root_error_seconds"] == pytest.approx(0.0004)
    assert (clock["chrony_synchronised"], clock["chrony_stratum"]) == (1.0, 4.0)
    assert clock["synchronised"] in (0.0, 1.0)


@pytest.mark.parametrize(
    "body", ["exit 1", "echo 506 Cannot talk to daemon", "exec sleep 60", "head -c 100000 /dev/zero"]
)
def test_a_chronyc_that_does_not_answer_costs_its_own_account_only(
    tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's account is there all the same."""
    monkeypatch.setattr("collectors.live.sources.clock_offset.CHRONY_SECONDS", 0.3)
    program = tmp_path / "chronyc"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    clock = rows(run(HostLoad(node(tmp_path, chronyc=str(program)))), "clock")[""]

    assert "chrony_correction_seconds" not in clock
    assert "offset_seconds" in clock
