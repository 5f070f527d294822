"""A rank that waits for a thread of its own: for another process where all of those are idle, else as before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from analyzers.model.verdict import Verdict
from collectors.records import Frame, Hop, SocketWait, StackDump, Thread
from tests.support.live_hangs import TRAIN, Hang, named, verdict

THREADING, LIBRARY = "/usr/lib/python3.11/threading.py", "/usr/lib/python3.11"
WAIT = Frame("wait", THREADING, 324)
GETS = (WAIT, Frame("get", f"{LIBRARY}/queue.py", 171), Frame("next_batch_of", "/srv/train.py", 33), *TRAIN)
EVENT = (WAIT, Frame("wait", THREADING, 622), Frame("until_given", "/srv/train.py", 40), *TRAIN)
FUTURE = (
    WAIT,
    Frame("result", f"{LIBRARY}/concurrent/futures/_base.py", 451),
    Frame("ask", "/srv/train.py", 9),
    *TRAIN,
)
ACCEPT = (Frame("accept", f"{LIBRARY}/socket.py", 294), Frame("serve_batches", "/srv/train.py", 60), *TRAIN)
SERVES = (
    Frame("select", f"{LIBRARY}/selectors.py", 416),
    Frame("serve_forever", f"{LIBRARY}/socketserver.py", 233),
    Frame("run", THREADING, 975),
)
HANDLER = (Frame("readinto", f"{LIBRARY}/socket.py", 706), Frame("handle", f"{LIBRARY}/http/server.py", 424))
LOOP = (Frame("select", f"{LIBRARY}/selectors.py", 468), Frame("_run_once", f"{LIBRARY}/asyncio/base_events.py", 1884))
MONITOR = (WAIT, Frame("run", "/x/site-packages/tqdm/_monitor.py", 60))
BUSY = (Frame("fill", "/srv/train.py", 70), Frame("run", THREADING, 975))
WIRE = (
    Frame("_exactly", "/srv/wire.py", 75),
    Frame("handle", "/srv/wire.py", 34),
    Frame("process_request_thread", f"{LIBRARY}/socketserver.py", 691),
    Frame("run", THREADING, 975),
)
POOLED = (
    Frame("ask", "/srv/train.py", 9),
    Frame("run", f"{LIBRARY}/concurrent/futures/thread.py", 58),
    Frame("_worker", f"{LIBRARY}/concurrent/futures/thread.py", 83),
)
PIPE = (
    Frame("_recv", f"{LIBRARY}/multiprocessing/connection.py", 395),
    Frame("recv_bytes", f"{LIBRARY}/multiprocessing/connection.py", 216),
)
SHARED = (*PIPE, Frame("get", f"{LIBRARY}/multiprocessing/queues.py", 103), *TRAIN)
POLLED = (
    Frame("select", f"{LIBRARY}/selectors.py", 415),
    Frame("wait", f"{LIBRARY}/multiprocessing/connection.py", 947),
    *SHARED,
)
LOADER = (*GETS[:2], Frame("next_batch", "/srv/train.py", 33), *TRAIN)
SELECTS = (Frame("select", f"{LIBRARY}/selectors.py", 415), Frame("next_message", "/srv/train.py", 60), *TRAIN)
POLLS = (Frame("next_message", "/srv/train.py", 60), *TRAIN)
TRACKS = (Frame("main", f"{LIBRARY}/multiprocessing/resource_tracker.py", 195),)
READS = (Frame("read_bytes", f"{LIBRARY}/pathlib.py", 1050), Frame("produce", "/srv/train.py", 80))


def judged(main: tuple[Frame, ...], *others: tuple[Frame, ...], looks: int = 2, recorder: bool = True) -> Verdict:
    """Return the verdict where rank 2 stands so, with these other threads."""
    more = tuple(Thread(frames=frames, name=f"Thread-{number}") for number, frames in enumerate(others))
    records = [
        msgspec.structs.replace(one, threads=(*one.threads, *more))
        if isinstance(one, StackDump) and one.rank == 2
        else one
        for one in Hang(stands=(main, main), state="S").records()
        if recorder or one.source[:8] != "recorder"
    ]
    return verdict(records, looks)


def on_sockets(main: tuple[Frame, ...], *sockets: SocketWait, thread: tuple[Frame, ...] = ()) -> Verdict:
    """Return the verdict where the system call of the main thread, or of another one, shows that it waits on sockets."""

    def seen(one: StackDump) -> StackDump:
        first, *rest = one.threads
        if not thread:
            return msgspec.structs.replace(one, threads=(msgspec.structs.replace(first, sockets=sockets), *rest))
        other = Thread(frames=thread, name="Thread-1", sockets=sockets)
        return msgspec.structs.replace(one, threads=(first, Thread(frames=SERVES), other))

    records = Hang(stands=(main, main), state="S").records()
    return verdict([seen(one) if isinstance(one, StackDump) and one.rank == 2 else one for one in records])


def beside_a_child(main: tuple[Frame, ...], child: tuple[Frame, ...]) -> Verdict:
    """Return the verdict where rank 2 has started a process that stands there."""
    records = Hang(stands=(main, main), state="S").records()
    children = [
        msgspec.structs.replace(
            one, pid=902, parent_pid=102, source="stacks/902", threads=(Thread(frames=child, main=True),)
        )
        for one in records
        if isinstance(one, StackDump) and one.rank == 2
    ]
    return verdict([*records, *children])


@pytest.mark.parametrize("main", [GETS, EVENT, FUTURE])
@pytest.mark.parametrize("others", [(SERVES,), (SERVES, HANDLER, MONITOR), (LOOP,)])
@pytest.mark.parametrize("recorder", [True, False])
@pytest.mark.parametrize("looks", [1, 2])
def test_what_it_waits_for_comes_from_another_process(
    main: tuple[Frame, ...], others: Sequence[tuple[Frame, ...]], recorder: bool, looks: int
) -> None:
    """No rank and no node is named, and what would name the other process is said."""
    found = judged(main, *others, looks=looks, recorder=recorder)
    assert (found.abstained, found.culprits, found.action.kind) == (True, (), "none")
    assert any("FAULTHOUND_ROLE" in one.what and "rank 2 waits" in one.what and one.matters for one in found.missing)
    assert found.victims.ranks == "0-3"


def test_a_rank_that_accepts_connections_waits_too() -> None:
    """With no other thread at all."""
    assert judged(ACCEPT).abstained
    assert judged(ACCEPT).action.kind == "none"


@pytest.mark.parametrize(
    ("main", "others"),
    [
        pytest.param(GETS, (), id="no_other_thread"),
        pytest.param(GETS, (MONITOR,), id="none_that_waits_for_another_process"),
        pytest.param(GETS, (SERVES, BUSY), id="a_thread_at_work"),
        pytest.param(EVENT, (SERVES, READS), id="a_thread_that_reads_a_file"),
        pytest.param((Frame("check_loss_scale", "/srv/train.py", 21), *TRAIN), (SERVES,), id="its_own_code"),
    ],
)
def test_what_hangs_in_the_rank_itself_stays_its_own(
    main: tuple[Frame, ...], others: Sequence[tuple[Frame, ...]]
) -> None:
    """A thread that works, or nothing from outside, leaves the rank as the one that holds the others up."""
    assert named(judged(main, *others)) == [2]


def test_a_data_loader_that_waits_for_its_workers_is_a_data_loader() -> None:
    """What is around the wait says for what, beside a server in the rank too."""
    loading = (*GETS[:2], Frame("_try_get_data", "/x/site-packages/torch/utils/data/dataloader.py", 1200), *TRAIN)
    found = judged(loading, SERVES, recorder=False)
    assert named(found) == [2]
    assert found.roots[0].fault_class == "stuck_data_loader"


def test_processes_that_state_their_role_are_asked_for_no_role() -> None:
    """What is missing then is for whom they wait, which only they can say."""
    records = [
        msgspec.structs.replace(
            one, role="trainer", threads=(*one.threads, Thread(frames=SERVES, name="server")) if one.rank == 2 else one.threads
        )
        if isinstance(one, StackDump)
        else msgspec.structs.replace(one, role="trainer") if getattr(one, "rank", None) is not None else one
        for one in Hang(stands=(GETS, GETS), state="S").records()
    ]  # fmt: skip
    missing = " ".join(one.what for one in verdict(records, 2).missing)
    assert "with all threads idle: `waiting` of faulthound_roles states it" in missing
    assert "FAULTHOUND_ROLE" not in missing


def test_a_loader_of_the_job_s_own_that_others_fill_waits_for_them() -> None:
    """What is a loader by its name alone, beside a server and nothing at work; beside a download the data may be late."""
    assert judged(LOADER, SERVES).abstained
    for others in ((LOOP,), (SERVES, BUSY), ()):
        assert judged(LOADER, *others, recorder=False).roots[0].fault_class == "stuck_data_loader"


@pytest.mark.parametrize("main", [SHARED, POLLED])
def test_a_queue_between_processes_is_filled_by_another_process(main: tuple[Frame, ...]) -> None:
    """By one of its own where it has any that is at work: then it is in the rank."""
    for found in (judged(main), beside_a_child(main, TRACKS), beside_a_child(main, PIPE)):
        assert (found.abstained, found.action.kind) == (True, "none")
        assert any("FAULTHOUND_ROLE" in one.what for one in found.missing)
    assert named(beside_a_child(main, BUSY)) == [2]


@pytest.mark.parametrize("thread", [WIRE, POOLED])
def test_a_thread_that_waits_on_a_socket_in_its_own_code_is_idle(thread: tuple[Frame, ...]) -> None:
    """The call is C, so that only the system call shows it; without that it may be at work."""
    waits = SocketWait(call="recvfrom")
    for main in (GETS, FUTURE):
        assert on_sockets(main, waits, thread=thread).abstained
    assert named(on_sockets(GETS, thread=WIRE)) == [2]


def test_a_rank_that_waits_to_be_called_is_not_at_work() -> None:
    """In a selector, or in its own code where the system call waits on sockets that lead to no other process."""
    itself = SocketWait(call="epoll_wait", hops=(Hop(local="a unix socket", pid=102, rank=2, job="llama"),))
    own_child = SocketWait(call="recvfrom", hops=(Hop(local="a unix socket", pid=902, rank=2, job="llama"),))
    assert judged(SELECTS).abstained
    assert on_sockets(POLLS, SocketWait(call="poll")).abstained
    assert on_sockets(POLLS, SocketWait(call="epoll_wait"), itself).abstained
    assert named(on_sockets(POLLS, own_child)) == [2]
    assert named(on_sockets(POLLS, SocketWait(hops=itself.hops))) == [2]  # it is blocked elsewhere


def test_a_rank_that_waits_for_a_program_that_it_started_is_at_work() -> None:
    """Its selector waits for that program's output."""
    waits = (
        SELECTS[0],
        Frame("_communicate", f"{LIBRARY}/subprocess.py", 2021),
        Frame("communicate", f"{LIBRARY}/subprocess.py", 1209),
        *TRAIN,
    )
    assert named(judged(waits, SERVES)) == [2]
