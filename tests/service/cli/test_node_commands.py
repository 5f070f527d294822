"""`faulthound nodes` and `faulthound standbys`: what they print, ask and change, and how they end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from analyzers.remediation.node_history import DAY_SECONDS, NodeRecord, Trial, record_trial
from service.clock import now
from service.packaged_knowledge import load, weights_of
from service.remediation import node_records
from service.store.database import Database
from service.store.models import Attempt, Job, Node, Placement
from tests.support.command_line import Done, faulthound
from tests.support.served import serving

pytestmark = pytest.mark.system  # a service runs
NODES = ("gpu-0001", "gpu-0002", "gpu-0003")
MUTE = "gpu-0004"  # that has not reported for ten minutes
SILENT = "gpu-0009"  # that was taken out and has never reported since


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a service that remembers two evictions, and knows a job with a declared spare."""
    folder, weights, at = tmp_path_factory.mktemp("nodes"), weights_of(load()), now()
    with serving(folder) as (url, _):
        database = Database(f"sqlite:///{folder / 'data' / 'faulthound.db'}")
        with database.transaction() as session:
            for node in NODES:
                session.add(Node(name=node, first_seen_at=at - 10 * DAY_SECONDS, last_seen_at=at))
            session.add(Node(name=MUTE, first_seen_at=at - DAY_SECONDS, last_seen_at=at - 630))
            session.add(Job(name="llama", first_seen_at=at, last_seen_at=at, declared={"spares": 0}, version=1))
            session.flush()
            session.add(Attempt(job="llama", number=1, first_seen_at=at, last_seen_at=at, world_size=3))
            for rank, node in enumerate(NODES):
                placed = Placement(job="llama", attempt=1, rank=rank, node=node, first_seen_at=at, last_seen_at=at)
                session.add(placed)
            for node in ("gpu-0002", SILENT):
                trial = Trial(probability=0.9, began_at=at - 60, ended_at=at - 30, outcome="cured", note="rem-1")
                node_records.write_record(session, record_trial(NodeRecord(node=node), trial, weights), at)
        database.close()
        yield url


def run(url: str, *arguments: str) -> Done:
    """Run a command against the service, without a terminal."""
    return faulthound(*arguments, "--service", url)


def test_nodes_are_listed_with_how_they_stand(url: str) -> None:
    """The list has a state for each that reports, and --unfit those that are not fit, also who has never reported."""
    rows = [line.split()[:2] for line in run(url, "nodes", "list").stdout.splitlines()]
    unfit = run(url, "nodes", "list", "--unfit").stdout.splitlines()

    assert rows == [["node", "state"], ["gpu-0001", "fit"], ["gpu-0002", "out"], ["gpu-0003", "fit"], [MUTE, "fit"]]
    assert [line.split()[0] for line in unfit] == ["node", "gpu-0002", SILENT]
    assert "check it, then let it serve again" in unfit[1]


def test_a_silent_node_is_marked(url: str) -> None:
    """One that does not report is marked with how long, in the list, alone and in JSON; one that reports is not."""
    lines = {line.split()[0]: line for line in run(url, "nodes", "list").stdout.splitlines()}
    rows = {row["name"]: row["silent_seconds"] for row in json.loads(run(url, "nodes", "list", "--json").stdout)}

    assert re.search(r"SILENT for 1\d min", lines[MUTE])
    assert "SILENT" not in lines["gpu-0001"]
    assert rows["gpu-0001"] is None
    assert rows[MUTE] >= 630
    assert re.search(r"SILENT for 1\d min", run(url, "nodes", "show", MUTE).stdout)


def test_a_node_is_shown_with_its_past(url: str) -> None:
    """What happened to it is listed with instants, and one that has not reported is shown by its record alone."""
    shown, silent = run(url, "nodes", "show", "gpu-0002").stdout, run(url, "nodes", "show", SILENT).stdout

    assert shown.startswith("gpu-0002: last seen 20")
    assert "recent evictions: 1, in vain: 0" in shown
    assert "evicted: rem-1" in shown
    assert silent.startswith(f"{SILENT}: it has not reported for long")
    assert json.loads(run(url, "nodes", "show", SILENT, "--json").stdout)["record"]["state"] == "out"


def test_that_a_node_is_back_is_said_by_a_person_who_agrees(url: str) -> None:
    """Without a terminal and without --yes nothing changes; a dry run says what would be; then it is under burn-in, once."""
    says = ("nodes", "returned", "gpu-0002", "--reason", "its HBM was replaced")

    unasked, rehearsed = run(url, *says), run(url, *says, "--dry-run")
    assert (unasked.returncode, rehearsed.returncode) == (5, 0)
    assert "under burn-in for 24 h of good steps" in unasked.stderr
    assert "Nothing was changed" in rehearsed.stderr
    assert run(url, "nodes", "list", "--unfit").stdout.splitlines()[1].split()[1] == "out"

    done = run(url, *says, "--yes")
    assert (done.returncode, "gpu-0002 is burn-in" in done.stderr) == (0, True), done.stderr
    again = run(url, *says, "--yes")
    assert (again.returncode, "under burn-in" in again.stderr) == (5, True), again.stderr
    checked = run(url, *says, "--checked", "--yes", "--json")
    assert json.loads(checked.stdout)["state"] == "fit"


@pytest.mark.parametrize("node", ["gpu-0001", "gpu-7777", "no such node!"])
def test_nobody_comes_back_who_was_not_away(url: str, node: str) -> None:
    """A fit node, one that nobody knows and what is no name: refused, with the next step."""
    done = run(url, "nodes", "returned", node, "--reason", "x", "--yes")

    assert done.returncode == 5
    assert done.stderr.startswith("faulthound: ")


def test_standbys_are_counted_and_compared(url: str) -> None:
    """Three nodes of a young fleet need one by the believed rate; the job has declared none, and one is missing."""
    shown = run(url, "standbys").stdout
    found = json.loads(run(url, "standbys", "--nodes", "1024", "--json").stdout)

    assert "mostly the rate that is believed of any fleet, 1 in 264 node-days" in shown
    (job,) = found["jobs"]
    assert (job["job"], job["nodes"], job["standbys"], job["spares"], job["missing"]) == ("llama", 3, 1, 0, 1)
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("llama")] == ["llama"]
    assert found["nodes"] == 1024
    assert found["standbys_low"] <= found["standbys"] <= found["standbys_high"]


@pytest.mark.parametrize("nodes", ["0", "-3", "many"])
def test_a_number_of_nodes_that_cannot_be_is_refused(url: str, nodes: str) -> None:
    """Standbys of no node, or of a word, are bad usage."""
    assert run(url, "standbys", "--nodes", nodes).returncode == 2
    assert run(url, "standbys", "--nodes", "1000001").returncode == 5
