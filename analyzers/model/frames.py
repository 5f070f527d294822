"""Stacks, written alike for every tool: frames normalised, and the duty that a thread is in.

Normalised frames carry no line, address, argument or installation path, so that equal work gives equal text on every
machine. Which functions mean which duty is dated data (``knowledge/stacks.toml``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from analyzers.knowledge import Knowledge
from collectors.records import Frame, StackDump, Thread

_INSTALLED = re.compile(r"^.*/(?:site|dist)-packages/|^.*/lib(?:64)?/python\d(?:\.\d+)?/|^.*/python\d(?:\.\d+)?\.zip/")
_TORCH = re.compile(r"(?:^|/)torch/(?:autograd|cuda|distributed|nn|optim|utils|_dynamo|_inductor|fx)/")
_PROBE = "faulthound_probe.py"
_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)|\[[^\[\]]*\]")
_SUFFIX = re.compile(r"@.*|\.(?:constprop|isra|part|cold|llvm).*", re.DOTALL)
_HEXADECIMAL = re.compile(r"^(?:0x[0-9a-fA-F]+|\?\?)$")
_INTERPRETER = re.compile(
    r"^(?:_?Py[A-Z_]\w*|_PyRun\w*|pymain_\w+|cfunction_\w+|method_vectorcall\w*|vectorcall_\w+|slot_\w+|builtin_\w+|"
    r"do_call_core|function_code_fastcall|run_mod|run_eval_code_obj|thread_run|pythread_wrapper|start_thread|clone3?|"
    r"object_vacall|gen_send_ex\w*|__libc_start\w*|_start|main)$"
)
MOST_REMEMBERED = 1 << 12
"""Different functions, files and stacks: the ranks of a job share most of theirs."""
NETWORK_CALL = "network_call"
_CALLED_FOR = frozenset({
    "storage", "store", "checkpoint", "exception", "exiting", "idle_worker",
    "waiting_collective", "waiting_p2p", "waiting_gradient", "waiting_device",
})  # fmt: skip
"""Duties for which a network call is made: they say more than the call itself."""
THREAD_WAIT, SERVING, PROCESS_WAIT = "thread_wait", "serving", "process_wait"
_WAITS = (PROCESS_WAIT, THREAD_WAIT, SERVING)
_FROM_OUTSIDE = frozenset({SERVING, NETWORK_CALL})
IDLE = _FROM_OUTSIDE | {THREAD_WAIT, PROCESS_WAIT, "idle_worker", "sleeping"}
_LIBRARY_ROOTS = frozenset({"torch", "torchvision", "numpy", "triton", "cupy", "nvidia"}) | sys.stdlib_module_names


@dataclass(frozen=True, slots=True)
class Duty:
    """What a thread does. ``name`` is empty where no rule fits; ``reasons``: every duty on the way out, innermost first."""

    name: str = ""
    operation: str = ""
    function: str = ""  # the normalised frame that the rule fits
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Rule:
    duty: str
    function: re.Pattern[str]
    file: re.Pattern[str] | None
    through: bool
    operation: str

    def fits(self, frame: Frame) -> bool:
        if self.file is not None and not self.file.search(frame.file):
            return False
        last = _last_part(frame.function)
        return bool(self.function.match(last) or self.function.match(frame.function))


@dataclass
class FrameRules:
    """The rules of a knowledge value, with what was already decided about each frame."""

    rules: tuple[_Rule, ...]
    limits: Mapping[str, float]
    _known: dict[tuple[str, str], tuple[_Rule | None, _Rule | None, bool, str]] = field(default_factory=dict)
    _duties: dict[tuple[Frame, ...], Duty] = field(default_factory=dict)

    @classmethod
    def of(cls, _window: object, knowledge: Knowledge) -> FrameRules:
        """Compile the rules for a window (``Window.once``): all that read it share what was decided about its frames."""
        return cls.from_knowledge(knowledge)

    @classmethod
    def from_knowledge(cls, knowledge: Knowledge) -> FrameRules:
        """Compile the rules of the ``stacks`` table."""
        table = knowledge.table("stacks")
        return cls(tuple(_compiled(row) for row in table.get("rule", ())), table.get("limits", {}))

    def limit(self, name: str, default: float) -> float:
        """Return a number of the table."""
        return float(self.limits.get(name, default))

    def duty(self, frames: Sequence[Frame]) -> Duty:
        """Return the duty of these frames, innermost first; the innermost rule that fits decides."""
        stack = tuple(frames)
        duty = self._duties.get(stack)
        if duty is None:
            if len(self._duties) >= MOST_REMEMBERED:
                self._duties.clear()
            duty = self._duties[stack] = self._duty(stack)
        return duty

    def _duty(self, frames: Sequence[Frame]) -> Duty:
        user_inside = False
        found: list[tuple[_Rule, Frame]] = []
        for frame in frames:
            any_rule, through_rule, user, _ = self._of(frame)
            rule = through_rule if user_inside else any_rule
            if rule is not None:
                found.append((rule, frame))
            user_inside = user_inside or user
        if not found:
            return Duty()
        rule, frame = found[0]
        if rule.duty == NETWORK_CALL:
            rule, frame = next((one for one in found if one[0].duty in _CALLED_FOR), found[0])
        elif rule.duty in _WAITS:  # what is around it says for what
            said = [one for one in found if one[0].duty not in _WAITS]
            rule, frame = next(iter(said or [one for one in found if one[0].duty == PROCESS_WAIT] or found))
        operation = _last_part(frame.function) if rule.operation == "$function" else rule.operation
        reasons = tuple(dict.fromkeys(one.duty for one, _ in found))
        return Duty(rule.duty, operation, self._of(frame)[3], reasons)

    def normal(self, frames: Sequence[Frame]) -> tuple[str, ...]:
        """Normalise a stack; frames of the interpreter and nameless ones are left out."""
        return tuple(text for frame in frames if (text := self._of(frame)[3]))

    def user_frame(self, frames: Sequence[Frame]) -> Frame | None:
        """Return the innermost frame of the user's own code."""
        return next((frame for frame in frames if self._of(frame)[2]), None)

    def _of(self, frame: Frame) -> tuple[_Rule | None, _Rule | None, bool, str]:
        key = (frame.function, frame.file)
        known = self._known.get(key)
        if known is None:
            fitting = [rule for rule in self.rules if rule.fits(frame)]
            through = next((rule for rule in fitting if rule.through), None)
            known = (fitting[0] if fitting else None, through, is_user_code(frame), normal(frame))
            self._known[key] = known
        return known


def _compiled(row: Mapping[str, Any]) -> _Rule:
    file = row.get("file")
    return _Rule(
        duty=str(row["duty"]),
        function=re.compile(str(row["function"])),
        file=re.compile(str(file)) if file else None,
        through=bool(row.get("through", False)),
        operation=str(row.get("operation", "")),
    )


def _last_part(function: str) -> str:
    """Return ``__next__`` of ``Loader.__next__``; C++ names keep their scope."""
    return function if "::" in function else function.rsplit(".", 1)[-1]


def normal(frame: Frame) -> str:
    """Write a frame without line, address, argument, template or installation path; empty where nothing is left."""
    return _normal(frame.function, frame.file)


@lru_cache(maxsize=MOST_REMEMBERED)
def _normal(function: str, file: str) -> str:
    if _HEXADECIMAL.match(function) or (_INTERPRETER.match(function) and not file.endswith(".py")):
        return ""
    if "::" in function or "(" in function:
        for _ in range(8):  # nested brackets come off one layer at a time
            shorter = _BRACKETS.sub("", function)
            if shorter == function:
                break
            function = shorter
    return f"{_SUFFIX.sub('', function)} ({place(file)})"


@lru_cache(maxsize=MOST_REMEMBERED)
def place(file: str) -> str:
    """Return a file without what depends on the machine: installed files from their package, others by two parts."""
    file = re.sub(r"[0-9a-f]{16,}|(?<=\D)\d{5,}", "#", file.replace("\\", "/"))
    shorter = _INSTALLED.sub("", file)
    return "/".join(file.split("/")[-2:]) if shorter == file and file.startswith("/") else shorter


def is_user_code(frame: Frame) -> bool:
    """Whether the frame is Python code of neither the standard library nor torch, nor of the probe, which wraps torch's."""
    file = frame.file.replace("\\", "/")
    if not file.endswith(".py") or _INSTALLED.match(file) or _TORCH.search(file) or file.endswith(_PROBE):
        return False
    root = file.lstrip("/").split("/", 1)[0].removesuffix(".py")
    return file.startswith("/") or root not in _LIBRARY_ROOTS


def shown(frame: Frame) -> str:
    """Write a frame for people, with its line."""
    where = place(frame.file) + (f":{frame.line}" if frame.line else "")
    return f"{frame.function} ({where})" if where else frame.function


def training_thread(dump: StackDump, rules: FrameRules) -> tuple[Thread | None, Duty]:
    """Choose the thread that trains, with its duty: the main one, or the autograd thread that the main one waits for."""
    main = next((thread for thread in dump.threads if thread.main), None)
    main = main or max(dump.threads, key=lambda thread: len(thread.frames), default=None)
    duty = rules.duty(main.frames) if main is not None else Duty()
    if THREAD_WAIT in (duty.name, *duty.reasons[:1]):
        from_outside = _from_outside(dump, main, rules)
        if duty.name == THREAD_WAIT and not from_outside:
            duty = Duty()  # what it waits for is its own process's: so is a hang
        elif duty.name == "data_loader" and SERVING in from_outside and _is_by_name(duty, main, rules):
            duty = replace(duty, name=THREAD_WAIT)  # a loader that others fill
    if duty.name != "waiting_gradient":
        return main, duty
    for thread in dump.threads:
        if thread is not main and any("autograd/function" in frame.file for frame in thread.frames):
            return thread, rules.duty(thread.frames)
    return main, duty


def _from_outside(dump: StackDump, main: Thread | None, rules: FrameRules) -> frozenset[str]:
    """Return how other threads wait for another process, where all are idle: what the main one lacks has to come from there."""
    others = {_duty_of(thread, rules) for thread in dump.threads if thread is not main and thread.frames}
    return _FROM_OUTSIDE & others if others <= IDLE else frozenset()


def _duty_of(thread: Thread, rules: FrameRules) -> str:
    """Return the duty of a thread. Of one in no known place the system call shows that it waits on a socket."""
    duty = rules.duty(thread.frames).name
    return NETWORK_CALL if duty in ("", "idle_worker") and any(one.call for one in thread.sockets) else duty


def _is_by_name(duty: Duty, main: Thread | None, rules: FrameRules) -> bool:
    """Whether the name of a function of the user's own gave this duty."""
    user = rules.user_frame(main.frames) if main is not None else None
    return user is not None and normal(user) == duty.function
