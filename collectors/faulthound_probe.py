"""Faulthound's probe: one file to copy beside a training script. Standard library only; the job never needs it.

    import faulthound_probe                                          # in the script, or without touching it:
    PYTHONPATH=/opt/faulthound python -m faulthound_probe train.py

It writes collectives, sends, receives, steps and phases into a file of fixed size under /dev/shm, which outlives SIGSTOP and
SIGKILL, and opens torch's worker server beside it. It wraps methods of torch's ``ProcessGroup`` and ``Work``, not the functions
of torch.distributed: those that the job imported before keep working, and torch.compile sees no difference. The probe's own
failures are caught and counted. ``FAULTHOUND_PROBE=0`` turns it off; docs/probe.md has the other variables.

The file, little-endian: header | groups | names, hashes | steps | timings | entries. A slot begins and ends with its number,
counted from 1; where the two differ, the slot was read during a write. Python's ``struct`` writes in order.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import hashlib
import importlib.machinery
import itertools
import json
import mmap
import os
import stat
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

MAGIC = b"FHRING\x00\x01"
HEADER = struct.Struct("<8s6I9q4i2I36s")
"""Magic; bytes of header, groups and names; slots of steps, timings, entries; pid, start ticks, UTC and monotonic ns of
one instant, entries written, swallowed failures, step, steps written, timings written; rank, world size, phase, role;
bytes of groups and of names in use; boot id."""
BASE_AT, WRITTEN_AT, SWALLOWED_AT, STEP_AT, STEPS_AT, TIMINGS_AT, PHASE_AT, ROLE_AT, GROUPS_AT, NAMES_AT = (
    48, 64, 72, 80, 88, 96, 112, 116, 120, 124,
)  # fmt: skip
UNSEEN_AT, MOST_GROUPS = 1024, 2048  # a byte a group: 1, it had collectives that Python does not see
HEADER_BYTES, GROUPS_BYTES, NAMES_BYTES = 4096, 1 << 16, 1 << 16
STEPS, TIMINGS, ENTRIES = 512, 512, 4096
STEP = struct.Struct("<QqqQ")  # number, step, monotonic ns, number
TIMING = struct.Struct("<QiiqqQ")  # number, name, 1 if it is the host's, step, ns, number
WAITED = "waited"  # the name of the host's one timing: how long a step was blocked in communication
HASH = struct.Struct("<QqqqQ")  # number, step, monotonic ns, hash, number
HASHES = 384
HASHES_FROM = NAMES_BYTES - HASHES * HASH.size  # in the table of names, behind the names
ENTRY = struct.Struct("<QiiiiqqqqqqQ")
"""Number; group, operation, phase, failed; collective and p2p sequence, bytes, entered, left (monotonic ns; -1), step;
number."""
LENGTH = struct.Struct("<H")  # before every group and name
LEFT_AT, FAILED_AT = 56, 20

OPERATIONS = {
    "allreduce": ("all_reduce", 0), "allreduce_coalesced": ("all_reduce", 0), "broadcast": ("broadcast", 0),
    "reduce": ("reduce", 0), "allgather": ("all_gather", 1), "all_gather_single": ("_all_gather_base", 1),
    "_allgather_base": ("_all_gather_base", 1), "allgather_coalesced": ("all_gather", 1),
    "all_gather_single_coalesced": ("_all_gather_base", 1), "allgather_into_tensor_coalesced": ("_all_gather_base", 1),
    "reduce_scatter": ("reduce_scatter", 1), "reduce_scatter_single": ("_reduce_scatter_base", 1),
    "_reduce_scatter_base": ("_reduce_scatter_base", 1), "reduce_scatter_single_coalesced": ("_reduce_scatter_base", 1),
    "reduce_scatter_tensor_coalesced": ("_reduce_scatter_base", 1), "gather": ("gather", 1), "scatter": ("scatter", 0),
    "alltoall": ("all_to_all", 1), "all_to_all_single": ("all_to_all", 1), "alltoall_base": ("all_to_all", 1),
    "barrier": ("barrier", -1), "monitored_barrier": ("barrier", -1),
    "send": ("send", 0), "recv": ("recv", 0), "recv_anysource": ("recv", 0),
}  # fmt: skip
"""Methods of ProcessGroup: the flight recorder's name, and the argument with this rank's tensors."""
MOST_FAILURES = 100  # after which the probe is off
MOST_DEVICE_PAIRS = 256
MOST_HASHES_AWAITED = 16  # that the device has not computed yet
HASH_BITS = 61  # a slot's values are below 1 << 62
MOST_DEAD = 64  # rings of ended processes kept in a folder: a job that crashes in a loop must not fill the memory


def _folder() -> str:
    """Return this user's folder of rings, created if missing; refuse one that another user could write into."""
    root = os.environ.get("FAULTHOUND_PROBE_DIR", "/dev/shm")  # noqa: S108 (the folder below is checked)
    path = f"{root}/faulthound-{os.geteuid()}"
    Path(path).mkdir(0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a folder of user {os.geteuid()} alone: remove it")
    return path


def _dead(path: str) -> bool:
    """Return whether no process holds a ring any more; its pid does not show that, it may be of another container."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def _sweep(folder: str) -> None:
    """Remove the oldest rings of ended processes beyond ``MOST_DEAD``, and their sockets: the node may have no agent."""
    with os.scandir(folder) as entries:
        rings = sorted(
            (each.stat(follow_symlinks=False).st_mtime_ns, each.path) for each in entries if each.name.endswith(".ring")
        )
    if len(rings) > MOST_DEAD:
        for path in [path for _, path in rings if _dead(path)][:-MOST_DEAD]:
            for name in (path, path.removesuffix("ring") + "sock"):
                Path(name).unlink(missing_ok=True)


def spans(ranks: Sequence[int]) -> str:
    """Write ranks as ``0-7,16`` or, a step apart, ``0-24:8``: a world of 16,384 in a few characters."""
    parts, first = [], 0
    while first < len(ranks):
        last = first + 1
        step = ranks[last] - ranks[first] if last < len(ranks) else 0
        while last < len(ranks) and step > 0 and ranks[last] - ranks[last - 1] == step:
            last += 1
        if last - first < 3:
            last = first + 1
        start, end = ranks[first], ranks[last - 1]
        parts.append(str(start) if start == end else f"{start}-{end}" if step == 1 else f"{start}-{end}:{step}")
        first = last
    return ",".join(parts)


class Ring:
    """The file in shared memory, reserved in full when it is created: a full /dev/shm must not end a job by SIGBUS."""

    def __init__(self, path: str, rank: int, world_size: int, entries: int = ENTRIES) -> None:
        self.path, self.entries = path, entries
        self.steps_offset = HEADER_BYTES + GROUPS_BYTES + NAMES_BYTES
        self.timings_offset = self.steps_offset + STEPS * STEP.size
        self.entries_offset = self.timings_offset + TIMINGS * TIMING.size
        size = self.entries_offset + entries * ENTRY.size
        new = f"{path}.new"
        Path(new).unlink(missing_ok=True)  # of an ended process that had our pid
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, size)
            self.memory = mmap.mmap(file, size)  # keeps a descriptor of its own, and with it the lock
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            Path(new).replace(path)
        except OSError:
            Path(new).unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        self.numbers, self.step_numbers, self.timing_numbers = itertools.count(), itertools.count(), itertools.count()
        self.hash_numbers = itertools.count()
        self.names: dict[str, int] = {}
        self.groups: dict[str, int] = {}
        self.names_used = self.groups_used = 0
        self.tables = threading.RLock()  # a checkpoint's thread may add a name at the same moment
        self.step, self.phase, self.failed = -1, -1, False
        ticks = int(
            Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
        )
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().encode()
        sizes = (HEADER_BYTES, GROUPS_BYTES, NAMES_BYTES, STEPS, TIMINGS, entries)
        instants = (time.time_ns(), time.monotonic_ns())
        fields = (os.getpid(), ticks, *instants, 0, 0, -1, 0, 0, rank, world_size, -1, -1, 0, 0, boot)
        HEADER.pack_into(self.memory, 0, bytes(8), *sizes, *fields)
        self.memory[:8] = MAGIC  # last: a reader never sees half a header

    def put(self, offset: int, value: int, kind: str = "<q") -> None:
        """Write one number."""
        struct.pack_into(kind, self.memory, offset, value)

    def name(self, text: str) -> int:
        """Return a text's number, -1 where the table is full."""
        found = self.names.get(text)
        return self._new_name(text) if found is None else found

    def _new_name(self, text: str) -> int:
        body = text.encode()[:512]
        with self.tables:
            if text not in self.names:
                if not self._append(HEADER_BYTES + GROUPS_BYTES, HASHES_FROM, self.names_used, body):
                    return -1  # not kept: a job may name a new phase at every step
                self.names_used += LENGTH.size + len(body)
                self.put(NAMES_AT, self.names_used, "<I")
                self.names[text] = len(self.names)
            return self.names[text]

    def group(self, name: str, description: str, backend: str, members: Sequence[int]) -> int:
        """Return a group's number, -1 where the table is full. A name with other members is another group."""
        body = json.dumps([name, description, backend, spans(members)]).encode()
        key = body.decode()
        with self.tables:
            if key not in self.groups:
                fits = len(self.groups) < MOST_GROUPS and len(body) < 1 << 16
                if not fits or not self._append(HEADER_BYTES, GROUPS_BYTES, self.groups_used, body):
                    return -1
                self.groups_used += LENGTH.size + len(body)
                self.put(GROUPS_AT, self.groups_used, "<I")
                self.groups[key] = len(self.groups)
            return self.groups[key]

    def _append(self, table: int, size: int, used: int, body: bytes) -> bool:
        if used + LENGTH.size + len(body) > size:
            return False
        self.memory[table + used : table + used + LENGTH.size + len(body)] = LENGTH.pack(len(body)) + body
        return True

    def enter(self, group: int, operation: int, collective: int, p2p: int, size: int) -> int:
        """Write an entry that has not been left and return its index."""
        index = next(self.numbers)
        if not index & 63:  # wall clocks are adjusted: the newest pair dates the entries
            struct.pack_into("<qq", self.memory, BASE_AT, time.time_ns(), time.monotonic_ns())
        ENTRY.pack_into(
            self.memory, self.entries_offset + index % self.entries * ENTRY.size,
            index + 1, group, operation, self.phase, 0, collective, p2p, size, time.monotonic_ns(), -1, self.step, index + 1,
        )  # fmt: skip
        self.put(WRITTEN_AT, index + 1)
        return index

    def leave(self, index: int, *, failed: bool = False) -> None:
        """Note that an entry's operation was left, unless its slot has been reused."""
        offset = self.entries_offset + index % self.entries * ENTRY.size
        if struct.unpack_from("<Q", self.memory, offset)[0] == index + 1:
            if failed:
                self.failed = True
                self.put(offset + FAILED_AT, 1, "<i")
            self.put(offset + LEFT_AT, time.monotonic_ns())

    def end_step(self, step: int) -> None:
        """Note that a step ended."""
        number = next(self.step_numbers)
        self.step = step
        where = self.steps_offset + number % STEPS * STEP.size
        STEP.pack_into(self.memory, where, number + 1, step, time.monotonic_ns(), number + 1)
        self.put(STEP_AT, step)
        self.put(STEPS_AT, number + 1)

    def timing(self, name: int, step: int, nanoseconds: int, *, of_host: bool = False) -> None:
        """Note the device's time for a phase, or the host's waits of a step."""
        number = next(self.timing_numbers)
        where = self.timings_offset + number % TIMINGS * TIMING.size
        TIMING.pack_into(self.memory, where, number + 1, name, int(of_host), step, nanoseconds, number + 1)
        self.put(TIMINGS_AT, number + 1)

    def hash(self, step: int, ended_ns: int, value: int) -> None:
        """Note the hash of the parameters after a step."""
        number = next(self.hash_numbers)
        where = HEADER_BYTES + GROUPS_BYTES + HASHES_FROM + number % HASHES * HASH.size
        HASH.pack_into(self.memory, where, number + 1, step, ended_ns, value, number + 1)


class _Group:
    """The counters of one process group. ``offset``: its sequence number less the recorder's."""

    __slots__ = ("expected", "lanes", "number", "offset", "rank")

    def __init__(self, number: int, rank: int) -> None:
        self.number, self.rank, self.offset, self.expected = number, rank, 0, -1
        self.lanes: dict[tuple[str, int], list[int]] = {}  # (kind, peer) → [name, count]


class _Waits:
    """For how long each step's thread was blocked in communication: a step less that is the rank's own time.

    In ``wait()``, and in what C++ waits for after a backward has computed: a callback that is queued before DDP's runs before
    it. A step with collectives that were issued elsewhere unseen is left out, and all where ``wait()`` does not block.
    """

    def __init__(self) -> None:
        self.blocks = True  # every group's ``wait()`` does, as gloo's
        self.thread, self.blocked_ns = 0, 0
        self.whole = False  # all that the step under way waited for was seen
        self.called = 0  # sequence numbers that calls from Python took
        self.unseen = 0  # that others took, when last looked at
        self.in_backward = False  # C++ issued collectives in one
        self.computed_ns = -1

    def begin(self) -> tuple[int, int]:
        """Return what ``end`` needs of a wait that begins."""
        return time.monotonic_ns(), self.blocked_ns

    def end(self, begun: tuple[int, int]) -> None:
        """Count a wait, with those inside it once."""
        if threading.get_ident() == self.thread:
            self.blocked_ns = begun[1] + time.monotonic_ns() - begun[0]

    def look(self, world: Any) -> bool:
        """Return whether collectives were issued unseen since the last look."""
        unseen: int = sum(group._get_sequence_number_for_group() for group in world._world.pg_map) - self.called
        before, self.unseen = self.unseen, unseen
        return before != unseen

    def end_step(self, world: Any) -> int:
        """Return how long the step was blocked in nanoseconds, -1 where that is not known, and begin the next."""
        unseen, same = self.look(world), threading.get_ident() == self.thread
        blocked = self.blocked_ns if self.whole and same and not unseen else -1
        self.thread, self.blocked_ns, self.whole = threading.get_ident(), 0, self.blocks
        return blocked

    def begin_backward(self, world: Any, tensors: Any) -> Any:
        """Have the instant noted at which the backward has computed; return the hook's handle, None for no hook."""
        self.computed_ns = -1
        if self.look(world):
            self.whole = False
        compiled = sys.modules.get("torch._dynamo.compiled_autograd")
        if not self.in_backward or not self.blocks or getattr(compiled, "compiled_autograd_enabled", False):
            return None
        root = tensors if hasattr(tensors, "register_hook") else next(iter(tensors))
        engine = sys.modules["torch.autograd"].Variable._execution_engine
        return root.register_hook(lambda _: _attempt(engine.queue_callback, self.computed))

    def computed(self) -> None:
        """Note that the backward has computed; what was queued after this waits."""
        self.computed_ns = time.monotonic_ns()

    def end_backward(self, world: Any, handle: Any) -> None:
        """Count what C++ waited for."""
        if handle is not None:
            handle.remove()
        if self.look(world):
            self.in_backward = True
            self.whole = self.whole and self.computed_ns >= 0
            if self.computed_ns >= 0:
                self.end((self.computed_ns, self.blocked_ns))


class _Device:
    """Event pairs on the current CUDA stream, read once the device has passed them: the probe never waits.

    Before the job itself uses the device nothing is asked of it: the question would begin a context, and forbid CUDA in
    every process that is forked later.
    """

    def __init__(self, cuda: Any, ring: Ring) -> None:
        self.cuda, self.ring = cuda, ring
        self.phase: tuple[str, Any] | None = None
        self.passed: deque[tuple[str, int, Any, Any]] = deque(maxlen=MOST_DEVICE_PAIRS)
        self.free: list[Any] = []

    def captures(self) -> bool:
        """Return whether a graph is being captured: an event would become part of it, and a question about one ends it."""
        return bool(self.cuda.is_initialized() and self.cuda.is_current_stream_capturing())

    def event(self) -> Any:
        """Record an event; None while none may be recorded."""
        if not self.cuda.is_initialized() or self.captures():
            return None
        event = self.free.pop() if self.free else self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def change(self, phase: str) -> None:
        """End the phase before and begin another; "" begins none."""
        before, event = self.phase, self.event()
        if before is not None:
            self.pair(before[0], before[1], event)
        self.phase = (phase, event) if phase and event is not None else None

    def pair(self, name: str, start: Any, end: Any) -> None:
        """Keep two events until the device has passed them."""
        if start is not None and end is not None:
            self.passed.append((name, self.ring.step, start, end))

    def read(self) -> None:
        """Note the pairs that the device has passed. An event that ends a pair and begins the next is not reused."""
        captures = bool(self.passed) and self.captures()
        while self.passed and not captures and self.passed[0][3].query():
            name, step, start, end = self.passed.popleft()
            self.ring.timing(self.ring.name(name), step, int(start.elapsed_time(end) * 1e6))
            if name == "communication":
                self.free += [start, end]


class _Parameters:
    """A hash of the parameters that optimizers step, after every N-th step: of all their bits, and of nothing else.

    The words of a tensor are added as whole numbers, which no order of adding changes: one bit that differs makes another
    sum. Of a sharded parameter it is this rank's shard; no method is called that could communicate. Buffers, such as the
    running statistics of a batch norm, differ between ranks by right and are left out.
    """

    def __init__(self, torch: Any, ring: Ring, every: int) -> None:
        self.torch, self.ring, self.every = torch, ring, every
        self.words = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
        self.optimizers: weakref.WeakKeyDictionary[Any, None] = (
            weakref.WeakKeyDictionary()
        )  # in the order of first steps
        self.awaited: deque[tuple[int, int, list[Any], Any]] = deque(maxlen=MOST_HASHES_AWAITED)

    def take(self, step: int) -> None:
        """Hash after this step, if it is one of those. A parameter that cannot be read ends it: one failure, not a hundred."""
        cuda = self.torch.cuda
        if cuda.is_initialized() and cuda.is_current_stream_capturing():  # it would become part of the graph
            return
        self.read()
        if self.every <= 0 or step % self.every:
            return
        every, self.every = self.every, 0
        with self.torch.no_grad():
            sums: dict[Any, list[Any]] = {}
            for tensor in self.tensors():
                sums.setdefault(tensor.device, []).append(self.sum(tensor))
            copies = [self.torch.stack(found).to("cpu", non_blocking=True) for found in sums.values()]
        event = cuda.Event() if any(device.type == "cuda" for device in sums) else None
        if event is not None:
            event.record()
        if copies:
            self.awaited.append((step, time.monotonic_ns(), copies, event))
        self.read()
        self.every = every

    def tensors(self) -> list[Any]:
        """Return the parameters' own memory, in the optimizers' order."""
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        local = [getattr(one, "_local_tensor", one).detach() for group in groups for one in group["params"]]
        return [tensor for tensor in local if tensor.numel()]

    def sum(self, tensor: Any) -> Any:
        """Return the sum of a tensor's words, modulo 2 to the 64."""
        size, int64 = tensor.element_size(), self.torch.int64
        if tensor.is_contiguous() and not tensor.numel() * size % 8 and not tensor.storage_offset() * size % 8:
            return tensor.view(-1).view(int64).sum()
        return tensor.view(self.words[size]).sum(dtype=int64)

    def read(self) -> None:
        """Note the hashes that the device has computed: the probe never waits."""
        while self.awaited and (self.awaited[0][3] is None or self.awaited[0][3].query()):
            step, ended_ns, copies, _ = self.awaited.popleft()
            sums = list(itertools.chain.from_iterable(copy.tolist() for copy in copies))
            digest = hashlib.blake2b(struct.pack(f"<{len(sums)}q", *sums), digest_size=8).digest()
            self.ring.hash(step, ended_ns, int.from_bytes(digest, "little") % (1 << HASH_BITS) or 1)


class _Probe:
    """The probe's state in this process. A forked child starts anew, with a ring of its own."""

    def __init__(self) -> None:
        self.ring: Ring | None = None
        self.device: _Device | None = None
        self.parameters: _Parameters | None = None
        self.waits = _Waits()
        self.groups: dict[str, _Group] = {}
        self.pending: dict[int, tuple[Any, tuple[int, ...], Any]] = {}  # id of a Work → itself (weak), entries, event
        self.batch: list[int] | None = None
        self.steps: dict[int, int] = {}  # id of an optimizer → its steps
        self.known_groups = -1
        self.failures = 0
        self.off = self.counted_by_hand = self.crashed = False
        self.server_path = self.phase = ""

    def swallow(self) -> None:
        """Count a failure of the probe; after too many it is off."""
        self.failures += 1
        self.off = self.off or self.failures >= MOST_FAILURES
        if self.ring is not None:
            self.ring.put(SWALLOWED_AT, self.failures)

    def open(self) -> Ring:
        """Create this process's ring, once its rank is known, with the server and the hooks."""
        torch = sys.modules.get("torch")  # never imported here: without it no method is wrapped
        world = sys.modules.get("torch.distributed.distributed_c10d")
        known = (world.get_rank(), world.get_world_size()) if world and world.is_initialized() else None
        rank, size = known or (int(os.environ.get(name, "-1")) for name in ("RANK", "WORLD_SIZE"))
        try:
            entries = min(max(int(os.environ.get("FAULTHOUND_PROBE_ENTRIES", ENTRIES)), 64), 1 << 16)
            folder = _folder()
            ring = self.ring = Ring(f"{folder}/{os.getpid()}.ring", rank, size, entries)
        except Exception:
            self.off = True  # no room or no permission: it would fail at every operation
            raise
        if os.environ.get("FAULTHOUND_ROLE"):
            ring.put(ROLE_AT, ring.name(os.environ["FAULTHOUND_ROLE"]), "<i")
        if os.environ.get("FAULTHOUND_PROBE_CUDA", "1") != "0" and torch:
            self.device = _Device(torch.cuda, ring)
        every = os.environ.get("FAULTHOUND_PROBE_HASH", "")
        if every.isdecimal() and int(every) and torch:
            self.parameters = _attempt(_Parameters, torch, ring, int(every))
        _attempt(_sweep, folder)
        _attempt(self.serve)
        if not _hooked:  # a forked child has them from its parent
            _hooked.append(True)
            _attempt(_hook_optimizers)
            _attempt(_hook_backward)
        return ring

    def serve(self) -> None:
        """Open torch's worker server, which answers from a C++ thread even while the interpreter's lock is held."""
        c10d = sys.modules.get("torch._C._distributed_c10d")
        if self.ring is None or os.environ.get("FAULTHOUND_PROBE_SERVER") == "0" or not hasattr(c10d, "_WorkerServer"):
            return
        path = self.ring.path.removesuffix("ring") + "sock"
        Path(path).unlink(missing_ok=True)
        server = c10d._WorkerServer(path)  # type: ignore[union-attr]
        # Never destroyed: in a forked child, which does not have its thread, the destructor would wait for ever.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
        self.server_path = path

    def group_of(self, pg: Any, name: str) -> _Group:
        """Register every group of this rank that is new, and return one."""
        world = sys.modules["torch.distributed.distributed_c10d"]
        ring = self.ring or self.open()
        for each in [pg, *world._world.pg_map]:
            known = self.groups.get(each.group_name)
            if known is None or each is pg:
                members, backend = list(world.get_process_group_ranks(each)), str(world.get_backend(each))
                number = ring.group(each.group_name, each.group_desc, backend, members)
                self.waits.blocks = self.waits.blocks and backend.endswith("gloo")
                if known is None or known.number != number:
                    self.groups[each.group_name] = _Group(number, each.rank())
        self.known_groups = len(world._world.pg_map)
        return self.groups[name]

    def enter(self, pg: Any, method: str, arguments: tuple[Any, ...]) -> tuple[_Group, int, int, bool]:
        """Write the entry of one call, with the group's own sequence number, which counts C++'s collectives too."""
        ring = self.ring or self.open()
        group = self.groups.get(pg.group_name) or self.group_of(pg, pg.group_name)
        before = pg._get_sequence_number_for_group()
        if before < group.expected:  # the group was destroyed and another made with its name
            del self.groups[pg.group_name]
            group = self.group_of(pg, pg.group_name)
        elif before > max(group.expected, 0) and group.number >= 0:
            ring.put(UNSEEN_AT + group.number, 1, "<B")
        kind, place = OPERATIONS[method]
        size = _bytes(arguments[place]) if 0 <= place < len(arguments) else 0
        p2p = kind in ("send", "recv")
        if p2p:
            peer = int(arguments[1]) if method != "recv_anysource" and len(arguments) > 1 else -1
            lane = group.lanes.get((kind, peer))
            if lane is None:
                arrow = "->" if kind == "send" else "<-"
                name = ring.name(f"{kind} {group.rank}{arrow}{peer if peer >= 0 else '?'}")
                lane = group.lanes[kind, peer] = [name, 0]
            lane[1] += 1
            index = ring.enter(group.number, lane[0], 0, lane[1], size)
        else:
            index = ring.enter(group.number, ring.name(kind), before - group.offset + 1, 0, size)
        return group, index, before, p2p

    def entered(self, pg: Any, work: Any, token: tuple[_Group, int, int, bool], event: Any) -> None:
        """Keep the call's Work, weakly, until it is left. Gloo's number counts sends and receives, its recorder does not."""
        group, index, before, p2p = token
        group.expected = pg._get_sequence_number_for_group()
        self.waits.called += group.expected - before
        if p2p:
            group.offset += group.expected - before
        if self.batch is not None and len(self.batch) < ENTRIES:  # a batch without an end must not grow for ever
            self.batch.append(index)
        elif work is None:
            self.leave((index,), event)
        else:
            self.watch(work, (index,), event)

    def watch(self, work: Any, entries: tuple[int, ...], event: Any) -> None:
        """Note a Work as left when it is waited for, found complete, or dropped."""
        key = id(work)
        self.pending[key] = weakref.ref(work, lambda _: _attempt(self.left, key)), entries, event

    def left(self, key: int, *, failed: bool = False) -> None:
        """Note that a Work was left."""
        if (found := self.pending.pop(key, None)) is not None:
            self.leave(found[1], found[2], failed=failed)

    def leave(self, entries: tuple[int, ...], event: Any = None, *, failed: bool = False) -> None:
        """Note that these entries were left."""
        ring, device = self.ring, self.device
        if ring is not None:
            for index in entries:
                ring.leave(index, failed=failed)
        if event is not None and device is not None:
            device.pair("communication", event, device.event())

    def end_step(self, step: int) -> None:
        """Note a step, and do the work of once a step."""
        ring = self.ring or self.open()
        ring.end_step(step)
        if self.parameters is not None:
            _attempt(self.parameters.take, step)
        world = sys.modules.get("torch.distributed.distributed_c10d")
        if world is None:
            return
        if len(world._world.pg_map) != self.known_groups and world._world.pg_map:
            first = next(iter(world._world.pg_map))
            self.group_of(first, first.group_name)
        for pg in world._world.pg_map:
            group = self.groups.get(pg.group_name)
            if group is not None and group.number >= 0 and pg._get_sequence_number_for_group() > max(group.expected, 0):
                ring.put(UNSEEN_AT + group.number, 1, "<B")  # DDP's buckets: C++ issues them
        if self.device is None or not self.device.captures():
            for key, (work, _, _) in list(self.pending.items())[:64]:
                if (alive := work()) is not None and alive.is_completed():
                    self.left(key)
        if self.device is not None:
            self.device.read()
        blocked_ns = self.waits.end_step(world)
        if blocked_ns >= 0 and self.waits.blocks:
            ring.timing(ring.name(WAITED), step, blocked_ns, of_host=True)

    def set_phase(self, phase: str) -> str:
        """Change the phase and return the one before."""
        ring = self.ring or self.open()
        before, self.phase = self.phase, phase
        ring.phase = ring.name(phase) if phase else -1
        ring.put(PHASE_AT, ring.phase, "<i")
        if self.device is not None:
            self.device.change(phase)
        return before

    def close(self) -> None:
        """Remove the file of a process that ends normally; the agent reads that of a crash."""
        if self.ring is not None:
            if self.server_path:
                Path(self.server_path).unlink(missing_ok=True)
            if not self.crashed and not self.ring.failed:
                Path(self.ring.path).unlink(missing_ok=True)


_probe = _Probe()
_hooked: list[bool] = []


def _attempt(act: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call, and catch every failure: whatever is wrong in the probe, the job goes on."""
    if _probe.off:
        return None
    try:
        return act(*arguments, **named)
    except Exception:  # noqa: BLE001 (the job must go on)
        try:
            _probe.swallow()
        except Exception:  # noqa: BLE001 (nor may the counting fail)
            _probe.off = True
        return None


def _bytes(tensors: Any) -> int:
    if isinstance(tensors, list | tuple):
        return sum(map(_bytes, tensors))
    return int(tensors.numel() * tensors.element_size())


def _wrapped(method: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of ProcessGroup that writes its entry and then calls the original."""

    @wraps(original)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        probe = _probe
        if probe.off:
            return original(self, *arguments, **named)
        token = _attempt(probe.enter, self, method, arguments)
        event = _attempt(probe.device.event) if probe.device is not None else None
        try:
            work = original(self, *arguments, **named)
        except BaseException:
            if token is not None:
                _attempt(probe.leave, (token[1],), failed=True)
            raise
        if token is not None:
            _attempt(probe.entered, self, work, token, event)
        return work

    return call


def _wrapped_wait(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def wait(self: Any, *arguments: Any, **named: Any) -> Any:
        begun = _attempt(_probe.waits.begin)
        try:
            result = original(self, *arguments, **named)
        except BaseException:
            _attempt(_probe.left, id(self), failed=True)
            raise
        if begun is not None:
            _attempt(_probe.waits.end, begun)
        if id(self) in _probe.pending:
            _attempt(_probe.left, id(self))
        return result

    return wait


def _wrapped_is_completed(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def is_completed(self: Any) -> Any:
        completed = original(self)
        if completed and id(self) in _probe.pending:
            _attempt(_probe.left, id(self))
        return completed

    return is_completed


def _wrapped_batch(original: Callable[..., Any], *, begins: bool) -> Callable[..., Any]:
    """Wrap the calls around a coalesced batch: its operations are left with the one Work that its end returns."""

    @wraps(original)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        entries, _probe.batch = _probe.batch, [] if begins else None
        work = original(self, *arguments, **named)
        if entries and not begins:
            _attempt(_probe.leave if work is None else partial(_probe.watch, work), tuple(entries), None)
        return work

    return call


def _hook_optimizers() -> None:
    """Count optimizer steps as the phase "optimizer", and those of the first optimizer as steps."""
    optimizer = sys.modules["torch.optim.optimizer"]
    before: list[str] = []

    def begin(*_: Any) -> None:
        before.append(_attempt(_probe.set_phase, "optimizer") or "")

    def end(which: Any, *_: Any) -> None:
        _attempt(_probe.set_phase, before.pop() if before else "")
        count = _probe.steps[id(which)] = _probe.steps.get(id(which), 0) + 1
        if _probe.parameters is not None:
            _attempt(_probe.parameters.optimizers.setdefault, which)
        if not _probe.counted_by_hand and next(iter(_probe.steps)) == id(which):
            _attempt(_probe.end_step, count)

    optimizer.register_optimizer_step_pre_hook(begin)
    optimizer.register_optimizer_step_post_hook(end)


def _hook_backward() -> None:
    """Count ``torch.autograd.backward`` as the phase "backward"."""
    autograd = sys.modules["torch.autograd"]
    original = autograd.backward

    @wraps(original)
    def backward(*arguments: Any, **named: Any) -> Any:
        world = sys.modules.get("torch.distributed.distributed_c10d")
        before = _attempt(_probe.set_phase, "backward")
        handle = _attempt(_probe.waits.begin_backward, world, arguments[0]) if world and arguments else None
        try:
            return original(*arguments, **named)
        finally:
            if world:
                _attempt(_probe.waits.end_backward, world, handle)
            _attempt(_probe.set_phase, before or "")

    autograd.backward = backward  # type: ignore[attr-defined]


def _patch() -> None:
    """Wrap the methods of torch's classes that this version has."""
    c10d, world = sys.modules["torch._C._distributed_c10d"], sys.modules["torch.distributed.distributed_c10d"]
    original = getattr(world, "_update_default_pg", lambda _: None)

    def update(group: Any) -> None:
        original(group)
        if group is not None and _probe.ring is None:  # a job of DDP alone calls no collective from Python
            _attempt(_probe.open)

    world._update_default_pg = update  # type: ignore[attr-defined]
    group, work = c10d.ProcessGroup, c10d.Work
    for method in OPERATIONS:
        if hasattr(group, method):
            setattr(group, method, _wrapped(method, getattr(group, method)))
    for method, begins in (("_start_coalescing", True), ("_end_coalescing", False)):
        if hasattr(group, method):
            setattr(group, method, _wrapped_batch(getattr(group, method), begins=begins))
    work.wait = _wrapped_wait(work.wait)
    work.is_completed = _wrapped_is_completed(work.is_completed)
    atexit.register(_close)
    os.register_at_fork(after_in_child=_begin_anew)
    previous = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _probe.crashed = True
        previous(kind, error, trace)

    sys.excepthook = excepthook


def _begin_anew() -> None:
    """Start anew in a forked child: the ring is its parent's and must not be written."""
    global _probe  # noqa: PLW0603 (one probe a process)
    _probe.ring, _probe.pending, _probe.device, _probe.parameters = None, {}, None, None
    _probe = _Probe()


def _close() -> None:
    with contextlib.suppress(Exception):
        _probe.close()


class _Waiting:
    """Wraps torch.distributed as soon as the job imports it."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None) -> Any:
        """Find the module as Python does, and wrap it after its execution."""
        if name != "torch.distributed.distributed_c10d":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _attempt(_patch)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Wrap torch.distributed now, or when it is imported. Importing this module does it."""
    if os.environ.get("FAULTHOUND_PROBE") == "0" or _probe.failures or hasattr(sys, "_faulthound_probe"):
        return
    sys._faulthound_probe = True  # type: ignore[attr-defined]  # one a process, however often the file was copied
    if "torch.distributed.distributed_c10d" in sys.modules:
        _attempt(_patch)
    else:
        sys.meta_path.insert(0, _Waiting())


class phase:  # noqa: N801 (used like a function: phase("forward"), or with phase("forward"): …)
    """Set the rank's phase from here on; as a context manager, until its end."""

    def __init__(self, name: str) -> None:
        self.before = _attempt(_probe.set_phase, name) or ""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        _attempt(_probe.set_phase, self.before)


def step(number: int) -> None:
    """Note the end of a step; without it the steps of the first optimizer are counted."""
    _probe.counted_by_hand = True
    _attempt(_probe.end_step, number)


def role(name: str) -> None:
    """Set the rank's role, in a job that has roles: trainer, rollout, reward and so on."""
    _attempt(lambda: (_probe.ring or _probe.open()).put(ROLE_AT, (_probe.ring or _probe.open()).name(name), "<i"))


def main() -> None:
    """Run a script, or ``-m`` a module, with the probe installed."""
    import runpy

    if len(sys.argv) < 2 or sys.argv[1:] == ["-m"]:
        sys.exit("usage: python -m faulthound_probe SCRIPT [ARGUMENTS], or -m MODULE [ARGUMENTS]")
    if sys.argv[1] == "-m":
        sys.argv = sys.argv[2:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = sys.argv[1:]
        sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "faulthound_probe":  # copied beside a script; the agent imports the layout only
    install()
elif __name__ == "__main__":
    import faulthound_probe  # type: ignore[import-not-found]  # the copy with this process's state

    faulthound_probe.main()
