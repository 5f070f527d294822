"""Where ranks run: `--hosts` in every form, and a hosts file in the folder, which is left out where it is too short."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from collectors.records import FlightRecorderDump, Group, KernelEvent, Members, Placement, ProcessState, Record, Unread
from service.cli import run
from service.cli.hosts import Hosts, without_short_files

REPOSITORY = Path(__file__).resolve().parents[3]
EXAMPLE = REPOSITORY / "examples" / "hung_job"


def job(folder: Path, hosts: str) -> Path:
    """Make the shipped incident with another hosts file; rank 3 of two ranks a node is the culprit."""
    shutil.copytree(EXAMPLE, folder)
    (folder / "hosts.txt").write_text(hosts)
    return folder


def test_a_line_a_node_places_no_rank_on_another_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four lines for eight ranks are nodes: rank 3 is not on the fourth, and no innocent node is named or evicted."""
    folder = job(tmp_path / "job", "gpu-0000\ngpu-0001\ngpu-0002\ngpu-0003\n")

    assert run(["diagnose", str(folder), "--json", "--quiet", "--workers", "1"]) == 0

    verdict = json.loads(capsys.readouterr().out)
    assert [(culprit["kind"], culprit["id"]) for culprit in verdict["culprits"]] == [("rank", "3")]
    assert verdict["action"]["nodes"] == []
    (unread,) = [line for line in verdict["coverage"]["unread"] if "hosts.txt" in line]
    assert "4 hosts" in unread
    assert "slots=" in unread


def test_slots_say_how_many_ranks_a_line_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the number of ranks on each line the same file names the node."""
    folder = job(tmp_path / "job", "".join(f"gpu-000{node} slots=2\n" for node in range(4)))

    assert run(["diagnose", str(folder), "--json", "--quiet", "--workers", "1"]) == 0

    assert json.loads(capsys.readouterr().out)["action"]["nodes"] == ["gpu-0001"]


def test_what_agents_report_and_whole_files_stay() -> None:
    """A placement of some ranks with their processes is an agent's, and a file with a line a rank is kept."""
    whole = Placement(source="a/hosts.txt", ranks=Members.of(range(4)), nodes=("x1", "x1", "x2", "x2"), world_size=4)
    agent = Placement(ranks=Members.of((0,)), nodes=("x1",), pids=(7,), world_size=8)
    seen = KernelEvent(source="", event="", rank=3)

    assert list(without_short_files([whole, agent, seen])) == [whole, agent, seen]
    (left_out, _) = without_short_files([whole, KernelEvent(source="", event="", rank=4)])
    assert isinstance(left_out, Unread)
    assert left_out.source == "a/hosts.txt"


def test_hosts_of_every_form(tmp_path: Path) -> None:
    """A file names the host of each rank by its line, or of each node with --ranks-per-node; a bare number makes blocks."""
    file = tmp_path / "hosts"
    file.write_text("# by hand\na slots=1\nb\n\na\nb\n", encoding="utf-8")
    four = [KernelEvent(source="", event="", rank=rank) for rank in range(4)]
    named = [KernelEvent(source="", event="", rank=2, node="gpu-7"), *four]

    def nodes(hosts: Hosts, records: list[KernelEvent]) -> tuple[str, ...]:
        return next(iter(hosts.placement(records))).nodes

    assert nodes(Hosts.given(str(file), None), list(four)) == ("a", "b", "a", "b")
    assert nodes(Hosts.given(str(file), 2), list(four)) == ("a", "a", "b", "b")
    assert nodes(Hosts.given(None, 2), list(named)) == ("node-0", "node-0", "gpu-7", "gpu-7")
    assert list(Hosts.given(None, None).placement(four)) == []
    with pytest.raises(ValueError, match=r"names the hosts of 4 ranks, the files show 6: .*--ranks-per-node"):
        nodes(Hosts.given(str(file), None), [*four, KernelEvent(source="", event="", rank=5)])
    with pytest.raises(ValueError, match="hold 2 ranks, the files show 4"):
        nodes(Hosts.given("x[1-2]", 1), list(four))
    with pytest.raises(ValueError, match="4 ranks do not divide into 3 hosts"):
        nodes(Hosts.given("x[1-3]", None), list(four))


@pytest.mark.parametrize(
    "proof",
    [
        FlightRecorderDump(rank=0, groups=(Group("0", "default_pg", Members.of(range(8))),)),
        Placement(ranks=Members.of((0, 1)), nodes=("x1", "x1"), world_size=8),
        ProcessState(pid=9, rank=0, command="python train.py --world-size 8"),
        ProcessState(pid=9, rank=0, command="env WORLD_SIZE=8 python train.py"),
    ],
    ids=["group", "placement", "option", "variable"],
)
def test_ranks_are_divided_among_hosts_where_a_record_states_how_many_they_are(proof: Record) -> None:
    """Half of the dumps of a job place its ranks as all of them do."""
    seen = [KernelEvent(source="", event="", rank=rank) for rank in range(4)]

    (placement,) = Hosts.given("x[1-4]", None).placement([*seen, proof])

    assert placement.nodes == ("x1", "x1", "x2", "x2", "x3", "x3", "x4", "x4")


@pytest.mark.parametrize(
    "beside",
    [
        FlightRecorderDump(rank=0, groups=(Group("7", "mesh_dp", Members.of(range(4))),)),
        FlightRecorderDump(rank=0, groups=(Group("0", "default_pg", None),)),
        Placement(ranks=Members.of((0, 1)), nodes=("x1", "x1"), world_size=2),
        ProcessState(pid=9, command="python other.py --world-size 8"),
        None,
    ],
    ids=["part of the ranks", "members not listed", "too small", "of no rank", "nothing"],
)
def test_ranks_are_not_divided_among_hosts_by_the_highest_rank_seen(beside: Record | None) -> None:
    """A node that the division got wrong would be evicted: the number of ranks a node is asked for."""
    seen: list[Record] = [KernelEvent(source="", event="", rank=rank) for rank in range(4)]
    seen += [beside] if beside else []

    with pytest.raises(ValueError, match=r"do not state how many ranks the job has.*--ranks-per-node"):
        list(Hosts.given("x[1-4]", None).placement(seen))
    (placement,) = Hosts.given("x[1-4]", 2).placement(seen)
    assert placement.nodes == ("x1", "x1", "x2", "x2")
    (placement,) = Hosts.given("x1", None).placement(seen)
    assert placement.nodes == ("x1",) * 4


@pytest.mark.parametrize(
    ("options", "code", "shown"),
    [
        (["--hosts", "gpu-[0000-0003]"], 2, "--ranks-per-node"),
        (["--hosts", "gpu-[0000-0003]", "--ranks-per-node", "2"], 0, "Rank 3 (node gpu-0001) hangs the job"),
        ([], 0, "4 ranks seen, in"),
    ],
)
def test_half_of_the_dumps_evict_no_other_node(
    tmp_path: Path, options: list[str], code: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four of the example's eight ranks, two a node: rank 3 runs on gpu-0001, whichever dumps were kept."""
    for rank in range(4):
        for kind in ("fr", "stacks"):
            shutil.copy(REPOSITORY / f"examples/hung_job/{kind}_rank{rank}.json", tmp_path)

    assert run(["diagnose", str(tmp_path), "--workers", "1", *options]) == code

    said = capsys.readouterr()
    assert shown in (said.err if code else said.out)
    assert "gpu-0003" not in said.out


def test_the_world_is_as_large_as_its_groups() -> None:
    """Ranks that left nothing behind still have a place when a group lists them."""
    dump = FlightRecorderDump(rank=0, groups=(Group("0", "", Members.of(range(16))),))

    assert len(next(iter(Hosts.given(None, 8).placement([dump]))).nodes) == 16


@pytest.mark.parametrize(("hosts", "rebooted"), [("a\na\n", []), ("a\ngpu-77\n", ["gpu-77"])])
def test_a_lost_gpu_of_a_host_that_the_list_lacks_is_not_the_jobs(
    tmp_path: Path, hosts: str, rebooted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of a kernel log's file is its node: one that is none of the job's is not to be rebooted."""
    folder, file = tmp_path / "job", tmp_path / "hosts"
    folder.mkdir()
    file.write_text(hosts.replace("a", "gpu-01"), encoding="utf-8")
    (folder / "train.log").write_text(
        "".join(f"[rank{rank}]: step {step} loss 2.5\n" for step in range(9) for rank in (0, 1)), encoding="utf-8"
    )
    lost = "[ 4200.000021] NVRM: Xid (PCI:0000:4c:00): 79, pid=8812, name=python, GPU has fallen off the bus.\n"
    (folder / "dmesg_gpu-77.log").write_text(lost, encoding="utf-8")

    run(["diagnose", str(folder), "--hosts", str(file), "--json", "--quiet", "--workers", "1"])

    verdict = json.loads(capsys.readouterr().out)
    assert verdict["action"]["nodes"] == rebooted
    assert any("no node of this job" in one["why"] for one in verdict["rejected"]) is not bool(rebooted)
