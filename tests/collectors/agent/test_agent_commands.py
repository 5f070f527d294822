"""Commands: a closed set of verbs, each answered for, none that has expired, is denied or cannot be done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from collectors.agent.client import Client
from collectors.agent.commands import Command, CommandPoll, Commands
from collectors.agent.run_output import Stamp
from collectors.agent.runner import Runner
from collectors.agent.settings import Settings
from collectors.agent.spool import Spool
from collectors.live import Collector, NothingToCollect, Request, Run
from collectors.live.sources.clock import NodeClock
from collectors.live.sources.host import Host
from collectors.records import CommandResult, LogEvent, Unread, block
from tests.support.agent_service import agent_service

Collect = Callable[[Request | None], Sequence[LogEvent | Unread]]


class Node:
    """A node with two collectors that answer "stacks", one that answers nothing, and its commands."""

    def __init__(self, folder: Path) -> None:
        self.host = Host("gpu-0001")
        self.stamp = Stamp(self.host)
        self.spool = Spool(folder, "gpu-0001", NodeClock(), bytes_max=1 << 26, seal_seconds=60.0)
        self.deny_file = folder / "deny"
        self.asked: list[tuple[str, Request | None]] = []
        self.runners = {
            "kernel": self.runner("kernel", ()),
            "stacks": self.runner("stacks", ("stacks",)),
            "threads": self.runner("threads", ("stacks",)),
        }
        self.commands = Commands(self.runners, self.spool, self.stamp, self.deny_file)

    def runner(self, name: str, answers: tuple[str, ...]) -> Runner:
        """One collector that notes what it is asked and yields a record."""

        def run(asked: Request | None) -> Sequence[LogEvent | Unread]:
            self.asked.append((name, asked))
            return self.does[name](asked)

        def make(_host: Host) -> Run:
            return run

        self.does: dict[str, Collect] = getattr(self, "does", {})
        self.does[name] = lambda asked: [LogEvent(event=name)]
        collector = Collector(name, "a test", 3600.0, 0.5, make, answers=answers)
        return Runner(collector, make, self.host, self.stamp, self.spool, 3600.0)

    def results(self) -> list[CommandResult]:
        """Return the results so far."""
        self.spool.seal(now=True)
        batches = self.spool._batches
        return [one for batch in batches for one in block.decode(batch.read()) if isinstance(one, CommandResult)]

    def result(self, verb: str, **arguments: Any) -> CommandResult:
        """Give one command and return its result."""
        before = len(self.results())
        self.commands.take(Command(f"c{before}", verb, arguments, time.time() + 60))
        deadline = time.monotonic() + 60
        while len(self.results()) == before and time.monotonic() < deadline:
            time.sleep(0.02)
        result = self.results()[-1]
        assert result.command == f"c{before}"
        return result


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node whose collectors run."""
    one = Node(tmp_path)
    for runner in one.runners.values():
        runner.start()
    yield one
    for runner in one.runners.values():
        runner.stop()


def reported(result: CommandResult) -> tuple[str, int]:
    """What a test checks first."""
    return result.outcome, result.records


def test_a_verb_reaches_the_collectors_that_answer_it(node: Node) -> None:
    """Every collector that answers "stacks" runs at once with the command's arguments, and one result counts their records."""
    result = node.result("stacks", ranks=[3], native=True)

    assert reported(result) == ("done", 2)
    assert sorted(node.asked, key=str) == [
        (name, Request("stacks", {"ranks": [3], "native": True})) for name in ("stacks", "threads")
    ]


def test_a_verb_that_no_process_answers_fails(node: Node) -> None:
    """A verb whose collectors do not run here fails with that reason."""
    assert "no collector that runs here answers 'recorders'" in node.result("recorders").text


def test_read_is_an_ordinary_run_now(node: Node) -> None:
    """``read`` runs the named collector once without a request; a collector that is not here is reported."""
    assert reported(node.result("read", collector="kernel")) == ("done", 1)
    assert node.asked == [("kernel", None)]
    assert "must be one that runs here: kernel, stacks, threads" in node.result("read", collector="../etc").text


def test_rate_is_bounded(node: Node) -> None:
    """``rate`` makes a collector run faster; rates and durations outside the bounds are refused with the bound."""
    assert reported(node.result("rate", collector="kernel", every_seconds=0.1, for_seconds=1)) == ("done", 0)
    time.sleep(0.6)
    assert len(node.asked) >= 3
    for every, lasting in ((0.01, 10), (1, 601), (1, float("nan")), ("1", 10), (True, 10), (1, None)):
        result = node.result("rate", collector="kernel", every_seconds=every, for_seconds=lasting)
        assert (result.outcome, "must be a number from" in result.text) == ("failed", True)


def test_what_the_node_denies_is_not_done(node: Node) -> None:
    """A verb of the deny file is answered "denied" from the moment it stands there, and not otherwise."""
    node.deny_file.write_text("# stacks\nrate # too expensive here\n  stacks\n")
    assert node.result("stacks").outcome == "denied"
    assert node.result("read", collector="kernel").outcome == "done"
    node.deny_file.unlink()
    assert node.result("stacks").outcome == "done"
    node.deny_file.mkdir()
    assert node.result("stacks").outcome == "denied"
    assert [name for name, _ in node.asked].count("stacks") == 1


def test_a_verb_outside_the_set_is_unknown(node: Node) -> None:
    """Whatever is no verb of the closed set is answered "unknown" and runs nothing."""
    assert [node.result(verb).outcome for verb in ("exec", "", "STACKS")] == ["unknown"] * 3
    assert node.asked == []


def test_expiry_is_by_the_service_s_clock(node: Node) -> None:
    """A command counts as expired by the clock of the service, whose offset the answer states, not by the node's."""
    now = time.time()
    node.commands.take(Command("late", "stacks", {}, now - 5), 0.0)
    node.commands.take(Command("late by our wrong clock", "stacks", {}, now - 5), 10.0)
    time.sleep(0.3)

    assert {one.command: one.outcome for one in node.results()} == {
        "late": "expired",
        "late by our wrong clock": "done",
    }


def test_outcomes_are_those_of_the_collectors(node: Node) -> None:
    """Nothing everywhere is "nothing"; a failure beside nothing is "failed" with the collector's words; records win."""

    def nothing(_asked: Request | None) -> list[LogEvent]:
        raise NothingToCollect("no job here")

    def failing(_asked: Request | None) -> list[LogEvent]:
        raise RuntimeError("no permission")

    node.does |= {"stacks": nothing, "threads": nothing}
    assert reported(node.result("stacks")) == ("nothing", 0)
    node.does["threads"] = failing
    failed = node.result("stacks")
    assert failed.outcome == "failed"
    assert failed.text == "stacks: no job here; threads: RuntimeError: no permission"
    node.does["stacks"] = lambda asked: [LogEvent(event="x")]
    assert reported(node.result("stacks")) == ("done", 1)


def test_an_answer_reports_what_was_not_read(node: Node) -> None:
    """What a collector could not read is in the answer with its ranks, and an answer with nothing else is ``nothing``."""
    refusals = [Unread(source="recorder", reason="no answer in time", rank=rank) for rank in (3, 1)]
    node.does["threads"] = lambda _asked: []
    node.does["stacks"] = lambda _asked: [*refusals, LogEvent(event="stacks")]
    some = node.result("stacks")
    node.does["stacks"] = lambda _asked: refusals
    del node.runners["threads"]
    none = node.result("stacks")

    assert (some.outcome, some.records, some.text) == ("done", 1, "stacks: not read: rank 1,3: no answer in time")
    assert (none.outcome, none.records, none.text) == ("nothing", 0, "stacks: not read: rank 1,3: no answer in time")

    of_roles = [
        Unread(source="r", reason="late", rank=rank, role=role) for role in ("trainer", "rollout") for rank in (1, 0)
    ]
    node.does["stacks"] = lambda _asked: of_roles
    assert node.result("stacks").text == "stacks: not read: rollout rank 0,1, trainer rank 0,1: late"


@pytest.mark.system
def test_a_collector_that_does_not_come_back_is_answered_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command whose collector hangs gets its result at the deadline, and what comes later adds no second one."""
    monkeypatch.setattr("collectors.agent.commands.ANSWER_SECONDS", 0.0)
    node.does["threads"] = lambda asked: time.sleep(1.5) or []
    node.commands.take(Command("c", "stacks", {}, None))
    time.sleep(0.8)
    node.commands.expire()
    (result,) = node.results()
    time.sleep(1.0)

    assert reported(result) == ("done", 1)
    assert "threads: did not return in time" in result.text
    assert len(node.results()) == 1


def test_the_long_poll_brings_commands(node: Node) -> None:
    """Commands that wait at a real service are taken by the poll, garbage among them is passed over."""
    with agent_service() as service:
        client = Client(Settings(service=service.url, node="gpu-0001"), NodeClock())
        poll = CommandPoll(node.commands, client, "gpu-0001")
        service.commands.append({"verb": "no id"})
        service.ask("stacks", "c7", ranks=[1])
        poll.start()
        assert service.wait(lambda: len(node.results()) == 1)
        service.ask("nonsense", "c8")
        assert service.wait(lambda: len(node.results()) == 2)
        poll.stop()
        assert service.requests[0][1] == "/v1/nodes/gpu-0001/commands/take?wait_seconds=25"
        assert [one.command for one in node.results()] == ["c7", "c8"]
        client.close()
