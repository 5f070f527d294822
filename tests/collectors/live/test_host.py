"""The node's own load, from fixture trees, from this machine, and from a file system whose server never answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collectors.live import NothingToCollect, Readings, Yielded, host_load
from collectors.live.host_load import HostLoad
from collectors.live.sources.host import Host, Roots
from collectors.records import Device, ProcessState, Unread
from tests.support.host_tree import MOUNTINFO, node, rows, run, write


def rank(root: Path, pid: int, number: int, cgroup: str) -> None:
    """A training process in a fixture tree, by its environment."""
    fields = ["S", "1", *["0"] * 17, "5000", *["0"] * 30]
    write(
        root / "proc" / str(pid),
        {
            "environ": f"RANK={number}\0WORLD_SIZE=8\0LOCAL_RANK={number}\0FAULTHOUND_JOB=demo\0",
            "stat": f"{pid} (python3) {' '.join(fields)}\n",
            "cmdline": "python3\0train.py\0",
            "status": f"Name:\tpython3\nPid:\t{pid}\nNSpid:\t{pid}\n",
            "cgroup": cgroup,
        },
    )


def test_processors_are_sent_as_the_kernel_counts_them(tmp_path: Path) -> None:
    """Ticks in each state since boot, switches, forks, and how many tasks run and wait; no share is worked out."""
    found = run(HostLoad(node(tmp_path, {"proc/loadavg": "1.50 2.25 3.00 3/512 4242\n"})))

    cpu = rows(found, "cpu")[""]
    assert (cpu["user_ticks_total"], cpu["idle_ticks_total"], cpu["steal_ticks_total"]) == (100, 4000, 8)
    assert (cpu["context_switches_total"], cpu["running_tasks"], cpu["blocked_tasks"]) == (987_654_321, 3, 2)
    assert rows(found, "load")[""]["load_five_minutes"] == 2.25


def test_memory_pressure_disks_and_files_are_read(tmp_path: Path) -> None:
    """Each in the unit of its file; a partition and a loop device are no disks."""
    pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=33\n"
    transfers = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17"
    tree = {
        "proc/meminfo": "MemTotal:       2113503480 kB\nMemAvailable:   100 kB\nHugePages_Total:   7\nOdd: x\n",
        "proc/vmstat": "oom_kill 3\npgmajfault 9\nnr_free_pages 1\n",
        "proc/pressure/memory": pressure,
        "proc/diskstats": f" 259 0 nvme0n1 {transfers}\n 259 1 nvme0n1p1 {transfers}\n 7 0 loop0 {transfers}\nbad\n",
        "proc/sys/fs/file-nr": "4096\t0\t9223372036854775807\n",
        "sys/block/nvme0n1/size": "1",
        "sys/block/loop0/size": "1",
    }

    found = run(HostLoad(node(tmp_path, tree)))

    assert rows(found, "memory")[""] == {
        "total_kib": 2_113_503_480, "available_kib": 100, "huge_pages": 7, "oom_kills_total": 3, "major_faults_total": 9,
    }  # fmt: skip
    assert rows(found, "pressure") == {"memory": {"some_us_total": 77, "full_us_total": 33}}
    assert set(rows(found, "disk")) == {"nvme0n1"}
    assert rows(found, "disk")["nvme0n1"]["in_flight"] == 9
    assert rows(found, "files")[""] == {"open_files": 4096, "open_files_limit": (1 << 63) - 1}


def test_numa_and_temperatures_are_read_by_node_and_sensor(tmp_path: Path) -> None:
    """A package's temperature is read, that of its single cores is not."""
    tree = {
        "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       1000 kB\nNode 0 MemFree:   10 kB\n",
        "sys/devices/system/node/node0/numastat": "numa_hit 5\nnuma_miss 6\n",
        "sys/class/hwmon/hwmon0/name": "coretemp\n",
        "sys/class/hwmon/hwmon0/temp1_label": "Package id 0\n",
        "sys/class/hwmon/hwmon0/temp1_input": "61000\n",
        "sys/class/hwmon/hwmon0/temp2_label": "Core 0\n",
        "sys/class/hwmon/hwmon0/temp2_input": "60000\n",
        "sys/class/hwmon/hwmon1/name": "mlx5\n",
        "sys/class/hwmon/hwmon1/temp1_input": "-5000\n",
    }

    found = run(HostLoad(node(tmp_path, tree)))

    assert rows(found, "numa")["node0"] == {
        "total_kib": 1000, "free_kib": 10, "numa_hit_pages_total": 5, "numa_miss_pages_total": 6,
    }  # fmt: skip
    assert rows(found, "temperature") == {
        "hwmon0/coretemp/Package id 0": {"temperature_millicelsius": 61000},
        "hwmon1/mlx5/temp1": {"temperature_millicelsius": -5000},
    }


def test_slow_parts_come_every_third_run(tmp_path: Path) -> None:
    """The clock's offset is among them: at 10 s a run it is read at 0, 30 and 60 s."""
    host = node(tmp_path)
    collector = HostLoad(host)
    read = []
    for _ in range(7):
        read.append(bool(rows(run(collector), "clock")))
        host.clock.at += 10  # type: ignore[attr-defined]

    assert read == [True, False, False, True, False, False, True]


def test_a_blocked_task_is_reported_with_what_it_waits_for(tmp_path: Path) -> None:
    """A name with brackets and spaces is read whole, and a task that sleeps is not reported."""
    fields = ["1", *["0"] * 17, "50000", *["0"] * 30]
    tree = {
        "proc/77/stat": f"77 (a) b (c) D {' '.join(fields)}\n",
        "proc/77/wchan": "rpc_wait_bit_killable",
        "proc/78/stat": f"78 (sleeper) S {' '.join(fields)}\n",
        "proc/79/stat": "79 (cut",
    }

    (task,) = [one for one in run(HostLoad(node(tmp_path, tree))) if isinstance(one, ProcessState)]

    assert (task.pid, task.state, task.wait_channel, task.command) == (77, "D", "rpc_wait_bit_killable", "a) b (c")
    assert task.elapsed_seconds == 1000.0 - 50000 / os.sysconf("SC_CLK_TCK")
    assert task.rank is None


def test_blocked_tasks_beyond_the_bound_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node on which everything hangs sends so many tasks one by one and says how many more there are."""
    monkeypatch.setattr(host_load, "BLOCKED_LIMIT", 5)
    tail = " ".join(["1", *["0"] * 48])
    tree = {f"proc/{pid}/stat": f"{pid} (x) D {tail}\n" for pid in range(100, 112)}

    found = run(HostLoad(node(tmp_path, tree)))

    assert len([one for one in found if isinstance(one, ProcessState)]) == 5
    assert [one.reason[:7] for one in found if isinstance(one, Unread)] == ["7 tasks"]


def test_a_pods_limits_are_read_where_they_stand(tmp_path: Path) -> None:
    """Version 2: the group of a rank, and the one above it that has the quota and counts the kill."""
    for number in range(2):
        rank(tmp_path, 500 + number, number, f"0::/pod7/rank{number}\n")
    tree = {
        "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        "sys/fs/cgroup/pod7/cpu.stat": "usage_usec 900\nnr_periods 50\nnr_throttled 40\nthrottled_usec 123456\n",
        "sys/fs/cgroup/pod7/memory.events": "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n",
        "sys/fs/cgroup/pod7/memory.max": "max\n",
        "sys/fs/cgroup/pod7/rank0/memory.current": "4096\n",
    }

    found = run(HostLoad(node(tmp_path, tree)))

    groups = rows(found, "cgroup")
    assert set(groups) == {"/pod7", "/pod7/rank0"}
    assert groups["/pod7"]["throttled_us_total"] == 123_456
    assert groups["/pod7"]["oom_kills_total"] == 1
    assert "memory_limit_bytes" not in groups["/pod7"]
    assert groups["/pod7/rank0"]["memory_bytes"] == 4096
    ranks = {one.id: one.attributes["ranks"] for one in found if isinstance(one, Device) and one.type == "cgroup"}
    assert ranks == {"/pod7": "0 1", "/pod7/rank0": "0"}


def test_version_1_groups_give_the_same_metrics(tmp_path: Path) -> None:
    """Nanoseconds become microseconds, and a kill is counted where version 1 has it."""
    rank(tmp_path, 500, 0, "4:memory:/slurm/job_9\n3:cpu,cpuacct:/slurm/job_9\n1:name=systemd:/other\n")
    tree = {
        "sys/fs/cgroup/cpu/slurm/job_9/cpu.stat": "nr_periods 50\nnr_throttled 40\nthrottled_time 123456789\n",
        "sys/fs/cgroup/memory/slurm/job_9/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        "sys/fs/cgroup/memory/slurm/job_9/memory.limit_in_bytes": "1024\n",
    }

    groups = rows(run(HostLoad(node(tmp_path, tree))), "cgroup")

    assert groups == {
        "/slurm/job_9": {
            "periods_total": 50, "throttled_periods_total": 40, "throttled_us_total": 123_456,
            "oom_kills_total": 2, "memory_limit_bytes": 1024,
        }
    }  # fmt: skip


def test_a_group_outside_the_tree_is_not_followed(tmp_path: Path) -> None:
    """A path that leads upwards, as a namespace shows it, never makes the agent read outside its root."""
    rank(tmp_path, 500, 0, "0::/../../elsewhere\n")
    tree = {"sys/fs/cgroup/cgroup.controllers": "", "sys/elsewhere/memory.current": "1\n"}

    assert rows(run(HostLoad(node(tmp_path, tree))), "cgroup") == {}


def test_a_part_that_fails_does_not_cost_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the program that asks mounts everything else is read, and the run fails with its name."""
    monkeypatch.setenv("PATH", str(tmp_path))
    collector = HostLoad(node(tmp_path, {"proc/1/mountinfo": MOUNTINFO}))
    found: list[Yielded] = []

    with pytest.raises(RuntimeError, match=r"1 of 11 parts failed: FileNotFoundError: .*'stat'"):
        found.extend(collector(None))

    assert rows(found, "cpu")
    assert rows(found, "clock")


@pytest.mark.parametrize(
    "garbage", ["", "\0\0\0", "cpu\n", "cpu  x y z\n", "9" * 5000, "a b c d e f g\n" * 50, "¹ ² ³\n"]
)
def test_garbage_in_any_file_gives_no_reading_and_no_failure(tmp_path: Path, garbage: str) -> None:
    """Whatever a file holds, the run ends well."""
    names = (
        "stat",
        "loadavg",
        "meminfo",
        "vmstat",
        "diskstats",
        "sys/fs/file-nr",
        "1/mountinfo",
        "pressure/cpu",
        "9/stat",
    )
    rank(tmp_path, 500, 0, garbage)

    found = run(HostLoad(node(tmp_path, {f"proc/{name}": garbage for name in names})))

    assert all(
        -(1 << 63) <= value < 1 << 63
        for tick in found
        if isinstance(tick, Readings) and tick.type == "<i8"
        for values in tick.values
        for value in values
        if value is not None
    )


def test_no_proc_is_nothing_to_collect(tmp_path: Path) -> None:
    """It says where it looked."""
    with pytest.raises(NothingToCollect, match=r"there is no .*/proc/stat"):
        run(HostLoad(Host("gpu-0001", Roots(proc=tmp_path / "proc"))))


def test_this_machine_is_read() -> None:
    """Its real /proc gives processors, memory, load, files and its root file system, as Python sees them."""
    found = run(HostLoad(Host("gpu-0001")))

    assert rows(found, "memory")[""]["total_kib"] * 1024 == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert rows(found, "load")[""]["load_one_minute"] == pytest.approx(os.getloadavg()[0], abs=0.5)
    asked = os.statvfs("/")
    assert rows(found, "filesystem")["/"]["total_bytes"] == asked.f_blocks * asked.f_frsize
    assert {"cpu", "files", "clock"} <= {one.scope for one in found if isinstance(one, Readings)}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("mount_seconds", "soon", "a number"), ("mount_seconds", True, "a number"), ("chronyc", 3, "a text")],
)
def test_an_option_of_another_type_is_named(name: str, value: object, words: str) -> None:
    """An option that cannot be used is an error with its name, its value and the type that it must have."""
    host = Host("gpu-0001", options={"host": {name: value}})

    with pytest.raises(ValueError, match=f"option {name} of host is {value!r} and must be {words}"):
        host.option("host", name, 3.0 if name == "mount_seconds" else "chronyc")

    assert Host("gpu-0001", options={"host": {"mount_seconds": 2}}).option("host", "mount_seconds", 3.0) == 2.0
