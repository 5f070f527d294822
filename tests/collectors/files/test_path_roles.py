"""Roles by the names of a folder's files: where several resolve, and where a name means something else."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from analyzers.model import topology
from analyzers.model.window import Window
from analyzers.verdict import judge
from collectors.files.path_roles import Seat, seats
from collectors.files.reading import read_paths
from collectors.records import LogEvent, Record, Steps
from service import packaged_knowledge

NAMED: dict[str, dict[str, Seat]] = {
    "numbers": {"trainer_0.log": Seat("trainer", 0), "rollout-3.out": Seat("rollout", 3)},
    "words": {"rollout_worker_3.log": Seat("rollout", 3), "reward_model_0.err": Seat("reward", 0)},
    "ranks": {"logs/actor_rank0.txt": Seat("actor", 0), "logs/critic_rank1.txt": Seat("critic", 1)},
    "folders": {"rollout/rank_2.log": Seat("rollout", 2), "trainers/_dump_0": Seat("trainer", 0)},
    "numbered folders": {"x/rollout_2/stdout.log": Seat("rollout", 2), "x/trainer_0/stderr.log": Seat("trainer", 0)},
    "folders of nodes": {"trainer-0/rank_3.log": Seat("trainer", 3), "rollout-0/rank_1.log": Seat("rollout", 1)},
    "joined": {"actor_rollout_ref_1.log": Seat("actor_rollout_ref", 1), "critic_0.log": Seat("critic", 0)},
    "prefix": {"exp7-trainer-0.stdout.log": Seat("trainer", 0), "exp7-rollout-1.stdout.log": Seat("rollout", 1)},
    "attempts": {
        "attempt_0/trainer_0.log": Seat("trainer", 0),
        "attempt_1/trainer_0.log": Seat("trainer", 0),
        "attempt_1/rollout_0.log": Seat("rollout", 0),
    },
    "torchrun": {
        "trainer/run_x/attempt_0/1/stderr.log": Seat("trainer"),
        "rollout/run_y/attempt_0/0/stderr.log": Seat("rollout"),
    },
}
SILENT: dict[str, list[str]] = {
    "no role": ["train_0.log", "stdout_3.log", "worker_1.log", "node0/rank_1.log", "server_2.log", "eval_0.log"],
    "one role": ["trainer_0.log", "trainer_1.log", "kern.log"],
    "one odd name": ["rank_0.log", "rank_1.log", "reward_0.log"],
    "ranks beside roles": ["rank_0.log", "trainer_0.log", "rollout_0.log"],
    "dumps beside roles": ["fr_0", "fr_1", "trainer_0.log", "rollout_0.log"],
    "numbers within a node": ["node0/trainer_0.log", "node1/trainer_0.log", "node0/rollout_0.log"],
    "ranks within an engine": ["rollout_0/rank_0.log", "rollout_1/rank_0.log", "trainer_0/rank_0.log"],
    "other words before": ["data_generator_0.log", "lr_policy_1.log", "trainer_0.log"],
    "years": ["trainer_2025.log", "rollout_2026.log"],
    "dates and pids": ["trainer_20260314.log", "rollout_48213.log"],
    "above the folder": ["/home/reward/x/rank_0.log", "/home/reward/x/trainer/rank_1.log"],
    "no number": ["trainer.log", "rollout.log", "trainer/stdout.log"],
    "within words": ["contractor_0.log", "benefactors_1.log", "preference_0.log"],
}


@pytest.mark.parametrize("case", NAMED)
def test_names_of_several_roles_give_role_and_number(case: str) -> None:
    """Role and number are read off where two roles resolve in names of one kind."""
    assert dict(seats(NAMED[case])) == NAMED[case]


@pytest.mark.parametrize("case", SILENT)
def test_other_names_give_nothing(case: str) -> None:
    """A name that may mean something else changes nothing."""
    assert not seats(SILENT[case])


def _trained(*, until: int = 6, rank: str = "") -> str:
    return "\n".join(f"{rank}2026-03-01 10:00:{step:02d} step: {step} loss: 1.{step}" for step in range(until)) + "\n"


def _written(folder: Path, files: dict[str, str]) -> list[Record]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(read_paths([folder]))


CRASH = 'Traceback (most recent call last):\n  File "/x/a.py", line 3, in generate\nValueError: no such key\n'


def test_a_crash_is_told_of_its_role(tmp_path: Path) -> None:
    """Of two processes with the number 0 the one that failed is named, with its role."""
    records = _written(tmp_path, {"trainer_0.log": _trained(), "rollout_0.log": CRASH, "rollout_1.log": _trained()})
    found = {(record.role, record.rank) for record in records if isinstance(record, LogEvent)}
    assert found == {("rollout", 0)}
    assert {(one.role, one.rank) for one in records if isinstance(one, Steps)} == {("trainer", 0), ("rollout", 1)}
    window = Window.build(records)
    verdict = judge.judge(window, topology.infer(window), packaged_knowledge.load(None))
    assert [(one.role, one.ranks) for one in verdict.culprits] == [("rollout", (0,))]


def test_lines_that_name_their_ranks_outrank_the_file_s_number(tmp_path: Path) -> None:
    """``trainer_1.log`` of a node with several ranks is no rank 1: what names no rank has none."""
    both = _trained(rank="[rank8]: ") + _trained(rank="[rank9]: ") + CRASH
    records = _written(tmp_path, {"trainer_1.log": both, "rollout_0.log": _trained()})
    assert {one.rank for one in records if isinstance(one, Steps) and one.role == "trainer"} == {8, 9}
    assert [(one.rank, one.role) for one in records if isinstance(one, LogEvent)] == [(None, "trainer")]


def test_each_role_has_its_own_torchrun(tmp_path: Path) -> None:
    """With one torchrun a role, the local ranks are the role's ranks."""
    names = [f"{role}/run_{role}/attempt_0/{rank}/stderr.log" for role in ("trainer", "rollout") for rank in (0, 1)]
    records = _written(tmp_path, dict.fromkeys(names, CRASH))
    found = {(one.role, one.rank) for one in records if isinstance(one, LogEvent)}
    assert found == {("trainer", 0), ("trainer", 1), ("rollout", 0), ("rollout", 1)}


def test_a_folder_without_roles_keeps_its_meaning(tmp_path: Path) -> None:
    """Names with a number and no role give neither rank nor role."""
    records = _written(tmp_path, {"train_0.log": CRASH, "worker_1.log": _trained(), "node0/stdout_3.log": CRASH})
    assert {(one.role, one.rank) for one in records if isinstance(one, LogEvent | Steps)} == {(None, None)}


@pytest.mark.parametrize("form", ["tar", "tgz", "zip", "no name of an archive"])
def test_paths_in_an_archive_are_roles_as_those_of_a_folder(tmp_path: Path, form: str) -> None:
    """Packed or unpacked, the same files are of the same roles."""
    names = {"logs/trainer_0.log": _trained(), "logs/rollout_0.log": CRASH, "logs/rollout_1.log": _trained()}
    unpacked = _written(tmp_path / "job", names)
    packed = tmp_path / f"job.{form}"
    if form == "zip":
        with zipfile.ZipFile(packed, "w") as archive:
            for name in names:
                archive.write(tmp_path / "job" / name, name)
    else:
        with tarfile.open(packed, "w:gz" if form == "tgz" else "w") as tar:
            tar.add(tmp_path / "job", "job")
    found = [(one.role, one.rank) for one in read_paths([packed]) if isinstance(one, LogEvent | Steps)]
    assert sorted(found) == sorted((one.role, one.rank) for one in unpacked)  # type: ignore[type-var]
    assert len(set(found)) == 3


@pytest.mark.parametrize(("archives", "ranks"), [(1, {0, 1}), (2, {None})])
def test_archives_of_several_nodes_have_no_rank_in_common(
    tmp_path: Path, archives: int, ranks: set[int | None]
) -> None:
    """In one archive torchrun's folders are the ranks; in one of each node they are local ranks."""
    names = {f"run_x/attempt_0/{rank}/stderr.log": CRASH for rank in (0, 1)}
    packed = [tmp_path / f"{number}.tgz" for number in range(archives)]
    for number, path in enumerate(packed):
        folder = tmp_path / str(number)
        list(_written(folder, names))
        with tarfile.open(path, "w:gz") as tar:
            tar.add(folder, "logs")

    assert {one.rank for one in read_paths(packed) if isinstance(one, LogEvent)} == ranks
