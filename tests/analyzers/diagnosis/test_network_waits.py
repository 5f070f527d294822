"""A rank in a network call waits: the process at the other end is named where an agent sees it, and no machine is evicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from analyzers.model.verdict import Verdict
from collectors.records import Frame, Hop, ProcessState, Record, SocketWait, StackDump, Thread
from tests.support.live_hangs import REDUCE, START, TRAIN, Hang, named, verdict

SOCKET = Frame("readinto", "/usr/lib/python3.11/socket.py", 706)
URLOPEN = (
    SOCKET,
    Frame("_read_status", "/usr/lib/python3.11/http/client.py", 286),
    Frame("urlopen", "/usr/lib/python3.11/urllib/request.py", 216),
    Frame("reward", "/srv/train.py", 33),
    *TRAIN,
)
LIBRARIES = {
    "urlopen": URLOPEN,
    "a raw socket": (Frame("ask", "/srv/train.py", 33), *TRAIN),
    "httpx over TLS": (
        Frame("read", "/usr/lib/python3.11/ssl.py", 1100),
        Frame("read", "/x/site-packages/httpcore/_backends/sync.py", 128),
        Frame("send", "/x/site-packages/httpx/_client.py", 914),
        Frame("judge", "/srv/train.py", 33),
        *TRAIN,
    ),
    "gRPC": (
        Frame("wait", "/usr/lib/python3.11/threading.py", 324),
        Frame("_blocking", "/x/site-packages/grpc/_channel.py", 1159),
        Frame("call_tool", "/srv/train.py", 33),
        *TRAIN,
    ),
    "Redis": (
        Frame("_read_from_socket", "/x/site-packages/redis/_parsers/socket.py", 65),
        Frame("execute_command", "/x/site-packages/redis/client.py", 559),
        Frame("next_task", "/srv/train.py", 33),
        *TRAIN,
    ),
    "an event loop": (
        Frame("select", "/usr/lib/python3.11/selectors.py", 468),
        Frame("_run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1884),
        Frame("run", "/usr/lib/python3.11/asyncio/runners.py", 190),
        Frame("main", "/srv/train.py", 33),
    ),
    "a dataset that downloads": (
        SOCKET,
        Frame("urlopen", "/usr/lib/python3.11/urllib/request.py", 216),
        Frame("__getitem__", "/srv/data.py", 12),
        *TRAIN,
    ),
}
UNSEEN = Hop(local="10.0.0.2:40000", remote="10.9.9.9:8000", state="established")
SERVER = msgspec.structs.replace(
    UNSEEN, pid=4711, command="python3", process_state="S", frames=(Frame("handle", "/srv/server.py", 12),)
)
STOPPED = msgspec.structs.replace(SERVER, process_state="T")


def wait(*hops: Hop, call: str = "recvfrom") -> SocketWait:
    """A socket that the training thread waits on."""
    return SocketWait(call=call, hops=hops)


@dataclass
class Waits(Hang):
    """A hang whose culprits wait on sockets, at each round the same; ``others``: what the other ranks' threads wait on."""

    sockets: Sequence[SocketWait] = (wait(UNSEEN),)
    others: Sequence[SocketWait] = ()
    recorder: bool = True
    stands: Sequence[tuple[Frame, ...]] = (URLOPEN, URLOPEN)
    state: str = "S"
    more: list[Record] = field(default_factory=list)

    def records(self) -> list[Record]:
        """Return what the agents sent, with the sockets."""
        return [self._with_sockets(one) for one in super().records() if self.recorder or one.source[:8] != "recorder"]

    def _with_sockets(self, one: Record) -> Record:
        if not isinstance(one, StackDump) or one.rank is None:
            return one
        sockets = tuple(self.sockets if one.rank in self.culprits else self.others)
        threads = tuple(msgspec.structs.replace(thread, sockets=sockets) for thread in one.threads)
        return msgspec.structs.replace(one, threads=threads)


def blames_no_machine(found: Verdict) -> bool:
    """Whether neither a rank nor a node is named, evicted or probed."""
    kinds = {culprit.kind for culprit in found.culprits}
    return not kinds & {"rank", "node", "device"} and found.action.kind == "none" and found.cause != "machine"


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("recorder", [True, False])
@pytest.mark.parametrize("looks", [1, 2])
def test_an_end_that_no_agent_sees_is_an_address(rank: int, recorder: bool, looks: int) -> None:
    """Wherever the waiter is, with and without recorders, the verdict is the address that it waits for."""
    found = verdict(Waits(culprits=(rank,), recorder=recorder).records(), looks)

    assert [(one.kind, one.id) for one in found.culprits] == [("service", "10.9.9.9:8000")]
    assert blames_no_machine(found)
    assert found.victims.ranks == "0-3"
    assert any("10.9.9.9:8000" in one.what for one in found.missing)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_client_library_does_not_matter(library: str) -> None:
    """The frames of the usual clients are recognised, and of an unknown one the system call is."""
    hang = Waits(stands=(LIBRARIES[library], LIBRARIES[library]))

    assert [one.kind for one in verdict(hang.records()).culprits] == ["service"]


def test_a_stopped_process_at_the_other_end_is_the_cause() -> None:
    """Its state is seen, so it is surer than an address; still no machine is taken out for it."""
    found = verdict(Waits(sockets=(wait(STOPPED),)).records())
    unseen = verdict(Waits().records())

    assert found.roots[0].fault_class == "service_stopped"
    assert blames_no_machine(found)
    assert found.culprits[0].probability > unseen.culprits[0].probability
    assert "4711" in found.culprits[0].why
    assert "state T" in found.culprits[0].why


def test_a_running_process_is_shown_with_its_stack() -> None:
    """Where it stands is in the sentence; what it does there is not judged."""
    found = verdict(Waits(sockets=(wait(SERVER),)).records())

    assert found.roots[0].fault_class == "network_wait"
    assert "handle (srv/server.py:12)" in found.culprits[0].why


def test_a_chain_ends_at_the_last_process() -> None:
    """A proxy that waits itself is passed through."""
    behind = Hop(local="127.0.0.1:50000", remote="127.0.0.1:6379", pid=99, command="redis-server", process_state="T")
    found = verdict(Waits(sockets=(wait(SERVER, behind),)).records())

    assert [one.id for one in found.culprits] == ["127.0.0.1:6379"]


def test_the_other_end_on_another_node_is_known_by_its_pair_of_addresses() -> None:
    """The agent there reports whose connection it is."""
    row = ProcessState(
        source="stacks", node="gpu-3", at=START + 60, boot_id="b", pid=815, command="vllm", state="T",
        connections=("10.9.9.9:8000>10.0.0.2:40000",),
    )  # fmt: skip
    found = verdict(Waits(more=[row]).records())

    assert found.roots[0].fault_class == "service_stopped"
    assert all(word in found.culprits[0].why for word in ("815", "vllm", "gpu-3"))


def test_a_rank_that_serves_and_is_stuck_is_named() -> None:
    """Rank 2 waits for rank 1, which stands in its own code: the chain goes through it, and rank 1 is the culprit."""
    serving = Hop(local="10.0.0.2:40000", remote="10.0.0.1:9000", pid=101, process_state="R", rank=1, job="llama")
    hang = Waits(culprits=(2,), sockets=(wait(serving),), recorder=False)
    spin = (Frame("check_loss_scale", "/srv/train.py", 21), *TRAIN)
    records = [
        msgspec.structs.replace(one, threads=(msgspec.structs.replace(one.threads[0], frames=spin),))
        if isinstance(one, StackDump) and one.rank == 1
        else one
        for one in hang.records()
    ]
    found = verdict(records)

    assert named(found) == [1]
    assert "2 → 1" in found.victims.chains


@pytest.mark.parametrize("sockets", [(), (wait(UNSEEN), wait(msgspec.structs.replace(UNSEEN, remote="10.9.9.8:1")))])
def test_where_the_connection_is_not_known_nothing_is_named(sockets: Sequence[SocketWait]) -> None:
    """The stack alone acquits the machine, and what would name the other end is missing."""
    found = verdict(Waits(sockets=sockets).records())

    assert found.abstained
    assert found.action.kind == "none"
    assert any("rank 2" in one.what and one.matters for one in found.missing)


def test_all_ranks_may_wait_for_one_server() -> None:
    """Then it is one end, with all of them waiting."""
    found = verdict(Waits(culprits=(0, 1, 2, 3), recorder=False).records())

    assert [one.kind for one in found.culprits] == ["service"]
    assert found.victims.count == 4


def test_sockets_of_a_collective_are_no_network_call() -> None:
    """A rank that waits in an all-reduce waits for its peers, whatever socket its thread is blocked on."""
    spin = (Frame("check_loss_scale", "/srv/train.py", 21), *TRAIN)
    hang = Waits(sockets=(), stands=(spin, spin), others=(wait(UNSEEN),), state="R")

    assert named(verdict(hang.records())) == [2]
    assert REDUCE[0].function == "all_reduce"


def test_a_rank_in_its_own_code_stays_the_culprit() -> None:
    """Connections that its thread is not blocked on excuse nothing."""
    spin = (Frame("check_loss_scale", "/srv/train.py", 21), *TRAIN)
    found = verdict(Waits(sockets=(wait(UNSEEN, call=""),), stands=(spin, spin), state="R").records())

    assert named(found) == [2]
    assert found.cause == "machine"


def test_a_child_of_its_own_is_no_other_end() -> None:
    """A rank that waits for its own child is stuck, as its machine may be."""
    own = Hop(local="a", remote="b", pid=300, process_state="S", rank=2, job="llama")
    mine = (Frame("ask", "/srv/train.py", 33), *TRAIN)

    assert named(verdict(Waits(sockets=(wait(own),), stands=(mine, mine)).records())) == [2]


def test_a_stopped_rank_is_named_whatever_it_was_in() -> None:
    """State T is the rank's own: a network call below it excuses nothing."""
    found = verdict(Waits(state="T").records())

    assert named(found) == [2]
    assert found.cause == "machine"


def test_a_download_of_a_model_remains_a_pause() -> None:
    """A rank that loads a model over the network is in a pause, as before."""
    loading = (SOCKET, Frame("from_pretrained", "/x/site-packages/transformers/modeling_utils.py", 5), *TRAIN)
    found = verdict(Waits(stands=(loading, loading)).records())

    assert not found.culprits
    assert found.roots[-1].fault_class.startswith("pause_")


def test_a_worker_of_the_data_loader_that_waits_outside_the_job() -> None:
    """The rank waits for its worker, and the worker for a server: the worker's socket is followed."""
    loading = (Frame("_try_get_data", "/x/site-packages/torch/utils/data/dataloader.py", 1200), *TRAIN)
    hang = Waits(sockets=(), stands=(loading, loading), recorder=False)
    fetch = Thread(
        frames=(Frame("__getitem__", "/srv/data.py", 9),), main=True, name="MainThread", sockets=(wait(STOPPED),)
    )
    workers: list[Record] = [
        msgspec.structs.replace(one, pid=900, parent_pid=one.pid, threads=(fetch,))
        for one in hang.records()
        if isinstance(one, StackDump) and one.rank == 2
    ]

    assert named(verdict(hang.records())) == [2]
    assert verdict([*hang.records(), *workers]).roots[0].fault_class == "service_stopped"
