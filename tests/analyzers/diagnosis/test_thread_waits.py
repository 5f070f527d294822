"""A rank that waits for a thread of its own: for another process where all of those are idle, else as before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from analyzers.model.verdict import Verdict
from collectors.records import Frame, StackDump, Thread
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
