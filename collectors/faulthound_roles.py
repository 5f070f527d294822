"""Faulthound's role client: one file to copy beside a job's scripts. Standard library only.

    import faulthound_roles
    me = faulthound_roles.join("rollout", "3", {"http": "10.0.0.7:9000"})     # an epoch of its own, renewed in the background
    me.phase("generate"); me.weights(7)
    me.waiting("reward"); me.working(); me.progress(tokens=9_000, running=3)   # optional: what it waits for, how far it is
    peers = faulthound_roles.watch()                                           # the directory, kept up to date
    peers.get("trainer", "0").endpoints["weights"]; peers.accepts("rollout", "3", epoch)  # whether to take what it sends

``FAULTHOUND_SERVICE``, ``FAULTHOUND_JOB``, ``FAULTHOUND_ATTEMPT``, ``FAULTHOUND_TOKEN`` or ``FAULTHOUND_TOKEN_FILE``, and
``FAULTHOUND_CA_FILE`` say where to and as whom. While the service is away the last known directory holds, and no instance is
replaced. A process whose instance was replaced or fenced gets ``Fenced`` from ``check()``: it has to end. See docs/roles.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from random import Random
from typing import Any

LEASE_SECONDS = 30.0
STATE_SECONDS = 5.0  # between two reports of what a process does: a phase may last a millisecond
POLL_SECONDS = 20.0
ANSWER_SECONDS = 10.0  # beyond what the service was asked to wait
RETRY_SECONDS = (0.5, 10.0)  # the first and the longest pause
WAIT_SAID_SECONDS = (3.0, 60.0)  # until ``join`` says what it waits for, and between two times
MOST_BYTES = 32 << 20
LOST_CODE = 3
COUNTS = {
    "tokens": "tokens_total", "steps": "steps_total", "running": "requests_running", "waiting": "requests_waiting",
    "queue": "queue_depth",
}  # fmt: skip
OF_ITSELF = ("activity", "endpoints", "phase", "weights")  # a renewal that lacks one leaves it as it was
MOST_SAID = 64  # of what is wrong, each once
_JITTER, _SAID = Random(), set[str]()  # noqa: S311 (no secret)


class Fenced(Exception):
    """This process's instance was replaced or fenced: it has to end."""


class Refused(Exception):
    """The service refused a request; the text is its reason. ``retry_seconds``: a later try may succeed."""

    def __init__(self, status: int, kind: str, detail: str, retry_seconds: float | None) -> None:
        super().__init__(detail)
        self.status, self.kind, self.retry_seconds = status, kind, retry_seconds


@dataclass(frozen=True)
class Role:
    """One instance of a role, as the directory has it. ``state``: serving, left or fenced; ``phase``: at its newest change."""

    role: str
    instance: str
    epoch: int
    endpoints: Mapping[str, str]
    weights: int | None
    phase: str
    state: str
    node: str | None


def _read_token() -> str:
    if path := os.environ.get("FAULTHOUND_TOKEN_FILE", ""):
        return Path(path).read_text().strip()
    return os.environ.get("FAULTHOUND_TOKEN", "")


@dataclass
class Service:
    """Where the directory is."""

    url: str = field(default_factory=lambda: os.environ.get("FAULTHOUND_SERVICE", "http://127.0.0.1:4747"))
    job: str = field(default_factory=lambda: os.environ.get("FAULTHOUND_JOB", ""))
    attempt: int = field(default_factory=lambda: int(os.environ.get("FAULTHOUND_ATTEMPT") or 0))
    token: str = field(default_factory=_read_token)
    ca_file: str = field(default_factory=lambda: os.environ.get("FAULTHOUND_CA_FILE", ""))

    def __post_init__(self) -> None:
        """Refuse a job without a name."""
        if not self.job:
            raise ValueError("the job has no name: set FAULTHOUND_JOB, or give Service(job=…)")

    def call(self, method: str, path: str = "", body: Mapping[str, Any] | None = None, wait: float = 0.0) -> Any:
        """Return a request's answer. Raise ``Refused``, or OSError where there is none."""
        url = f"{self.url.rstrip('/')}/v1/jobs/{urllib.parse.quote(self.job)}/roles{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        context = ssl.create_default_context(cafile=self.ca_file or None) if url.startswith("https:") else None
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS + wait, context=context) as answer:  # noqa: S310
                return json.loads(answer.read(MOST_BYTES))
        except urllib.error.HTTPError as error:
            raise _refused(error) from None
        except (ValueError, EOFError) as error:  # half an answer
            raise OSError(f"the answer of {self.url} cannot be read: {error}") from None


class Membership:
    """What this process holds. ``epoch`` goes with whatever it sends to its peers."""

    def __init__(
        self, service: Service, asked: dict[str, Any], lease: Mapping[str, Any], lost: Callable[[str], None]
    ) -> None:
        self._service, self._asked, self._lost = service, asked, lost
        self._changed, self._ended = threading.Event(), threading.Event()
        self._why, self._doing, self._urgent = "", _Doing(), False
        self.epoch: int = lease["role"]["epoch"]
        self._thread = threading.Thread(target=self._renew, name="faulthound-roles", daemon=True)
        self._thread.start()

    def phase(self, name: str) -> None:
        """Say what this process does from now on; sent in the background, within some seconds."""
        if self._asked.get("phase") != str(name):
            self._doing.phase_at = time.monotonic()
            self._set("phase", str(name), urgent=False)

    def waiting(self, whom: str) -> None:
        """Say that this process waits: for a role ("reward"), an instance ("trainer 0"), "queue:NAME" or "host:port"."""
        if self._doing.waiting_for != str(whom):
            self._doing.wait(str(whom))
            self._changed.set()

    def working(self) -> None:
        """Say that this process waits no longer."""
        self.waiting("")

    def progress(self, **counts: int) -> None:
        """Say how far it is: ``tokens``, ``steps`` since it started; ``running``, ``waiting`` requests; the ``queue``'s depth."""
        doing, known = self._doing, _counts(counts, COUNTS)
        for name, at in (("tokens", "token_at"), ("steps", "step_at")):
            if known.get(name, doing.counts.get(name)) != doing.counts.get(name):
                setattr(doing, at, time.monotonic())
        doing.counts = doing.counts | known

    def weights(self, version: int) -> None:
        """Say which version of the weights this process has."""
        for name, count in _counts({"weights": version}, ("weights",)).items():
            self._set(name, count)

    def endpoints(self, endpoints: Mapping[str, str]) -> None:
        """Say where this process is reached from now on."""
        self._set("endpoints", {str(name): str(where) for name, where in endpoints.items()})

    def check(self) -> None:
        """Raise ``Fenced`` where this process has lost its instance."""
        if self._why:
            raise Fenced(self._why)

    def leave(self) -> None:
        """End in order: another process may take the place at once."""
        self._ended.set()
        self._changed.set()
        body = {name: self._asked[name] for name in ("role", "instance")} | {"epoch": self.epoch}
        with contextlib.suppress(Refused, OSError):
            self._service.call("POST", "/leave", body)

    def _set(self, name: str, value: Any, *, urgent: bool = True) -> None:
        if self._asked.get(name) != value:
            self._asked[name] = value
            self._urgent = self._urgent or urgent
            self._changed.set()

    def _wait(self, sent_at: float) -> bool:
        """Wait until there is something to send: peers need endpoints and weights at once, and all else every few seconds."""
        every = min(LEASE_SECONDS, self._asked["lease_seconds"]) / 3  # of a long lease too
        self._changed.wait(0.0 if self._urgent else every)
        while not self._ended.is_set():
            self._changed.clear()
            left = sent_at + min(STATE_SECONDS, every) - time.monotonic()
            if self._urgent or left <= 0:
                return True
            self._changed.wait(left)
        return False

    def _renew(self) -> None:
        pause, sent_at, bare = _Pause(), 0.0, False
        while self._wait(sent_at):
            self._changed.clear()
            self._urgent, sent_at = False, time.monotonic()
            said = {**self._asked, "activity": self._doing.said(), "epoch": self.epoch}
            try:
                self._service.call("PUT", "", {name: said[name] for name in said if not (bare and name in OF_ITSELF)})
            except Refused as refused:
                if refused.kind in ("fenced", "not-found"):
                    self._why = str(refused)
                    self._ended.set()
                    self._lost(self._why)
                    return
                if refused.kind == "invalid":
                    bare, self._doing.plain = self._doing.plain, True
                if bare:  # the place is worth more than what was said
                    _say(f"what this process says of itself is left out, because it is refused: {refused}")
                pause.take(self._ended, refused.retry_seconds)
            except OSError:
                pause.take(self._ended)
            else:
                pause, bare, self._doing.plain = _Pause(), False, self._doing.plain and not bare
                continue
            self._urgent = True


@dataclass
class _Doing:
    """What a process says of itself; instants of its monotonic clock are sent as ages, so that no clocks are compared."""

    phase_at: float = field(default_factory=time.monotonic)
    waiting_for: str = ""
    waiting_at: float = 0.0
    worked: tuple[float, float] = field(default_factory=lambda: (0.0, time.monotonic()))  # seconds, until when
    plain: bool = False  # an older service refuses what it does not know
    token_at: float | None = None
    step_at: float | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def wait(self, whom: str) -> None:
        now, (done, at) = time.monotonic(), self.worked
        self.worked = done + (0.0 if self.waiting_for else now - at), now
        self.waiting_at, self.waiting_for = now, whom

    def said(self) -> dict[str, Any]:
        now, whom = time.monotonic(), self.waiting_for
        ages = {"phase_seconds": self.phase_at, "token_seconds": self.token_at, "step_seconds": self.step_at,
                "waiting_seconds": self.waiting_at if whom else None}  # fmt: skip
        since = {name: round(now - at, 3) for name, at in ages.items() if at is not None}
        if self.waiting_at and not self.plain:  # without waits its work is not known
            since["worked_seconds"] = round(self.worked[0] + (0.0 if whom else now - self.worked[1]), 3)
        return {"waiting_for": whom, **since, **{COUNTS[name]: count for name, count in self.counts.items()}}


class Directory:
    """The job's directory, kept up to date by a thread; what was known last holds while the service is away."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._roles, self._highest = dict[tuple[str, str], Role](), dict[tuple[str, str], int]()
        self._changed, self._ended = threading.Condition(), threading.Event()
        self.version = 0
        self.reached_at: float | None = None  # time.monotonic() of the newest answer
        self._thread = threading.Thread(target=self._watch, name="faulthound-directory", daemon=True)
        self._thread.start()

    def get(self, role: str, instance: str) -> Role | None:
        """Return an instance that serves, None where there is none."""
        with self._changed:
            found = self._roles.get((role, instance))
        return found if found is not None and found.state == "serving" else None

    def of(self, role: str) -> list[Role]:
        """Return the instances of a role that serve."""
        with self._changed:
            return [one for one in self._roles.values() if one.role == role and one.state == "serving"]

    def accepts(self, role: str, instance: str, epoch: int) -> bool:
        """Return whether to take what an instance sent under an epoch: no lower one than the highest that was ever seen."""
        with self._changed:
            known = self._roles.get((role, instance))
            highest = self._highest.get((role, instance), 0)
            if epoch < highest or (known is not None and known.epoch == epoch and known.state != "serving"):
                return False
            self._highest[role, instance] = epoch
            return True

    def wait(self, holds: Callable[[Directory], bool], seconds: float | None = None) -> bool:
        """Wait until something holds of the directory; return whether it does."""
        deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
        while not holds(self):
            if (left := deadline - time.monotonic()) <= 0:
                return False
            with self._changed:
                self._changed.wait(min(left, 1.0))
        return True

    def close(self) -> None:
        """End the thread, within one poll."""
        self._ended.set()

    def _watch(self) -> None:
        pause, after, wait = _Pause(), 0, 0.0
        while not self._ended.is_set():
            try:
                answer = self._service.call("GET", f"?after={after}&wait_seconds={wait:g}", wait=wait)
                wait = POLL_SECONDS
            except (Refused, OSError) as error:
                if getattr(error, "kind", "") == "not-found" and not wait:
                    wait = POLL_SECONDS  # the first registration ends it
                    continue
                pause.take(self._ended, getattr(error, "retry_seconds", None))
                continue
            pause, after = _Pause(), self._take(answer)

    def _take(self, answer: Mapping[str, Any]) -> int:
        with self._changed:
            for one in answer["items"]:
                role = Role(**{name: one[name] for name in Role.__dataclass_fields__})
                key = role.role, role.instance
                self._roles[key] = role
                self._highest[key] = max(role.epoch, self._highest.get(key, 0))
            self.version, self.reached_at = answer["version"], time.monotonic()
            self._changed.notify_all()
        return self.version


def join(
    role: str, instance: str, endpoints: Mapping[str, str] | None = None, *, service: Service | None = None,
    seconds: float | None = None, lost: Callable[[str], None] | None = None, **said: Any,
) -> Membership:  # fmt: skip
    """Register this process as an instance of a role, and renew that in the background.

    It waits for the service, and for the end of a former holder's lease, for so many seconds (None: for ever), and says so on
    stderr. ``lost`` is called in the background with the reason. ``said``: ``weights``, ``phase``, ``node``, ``lease_seconds``.
    Raises ``Fenced`` where this process had it and lost it, ``Refused`` where the service does not allow it, TimeoutError.
    """
    service = service or Service()
    asked = {
        "role": role, "instance": instance, "process": _process(), "pid": os.getpid(), "attempt": service.attempt,
        "endpoints": dict(endpoints or {}), "node": socket.gethostname(), "lease_seconds": LEASE_SECONDS, **said,
    }  # fmt: skip
    deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
    pause, why, retry, say_at = _Pause(), "no answer yet", None, time.monotonic() + WAIT_SAID_SECONDS[0]
    while time.monotonic() < deadline:
        try:
            return Membership(service, asked, service.call("PUT", "", asked), lost or _report)
        except Refused as refused:
            if refused.kind == "fenced":
                raise Fenced(str(refused)) from None
            if refused.retry_seconds is None and refused.status < 500:
                raise
            why, retry = str(refused), refused.retry_seconds
        except OSError as error:
            why, retry = f"{service.url.rpartition('@')[2]} does not answer ({error})", None
        if time.monotonic() + (retry or 0.0) >= say_at:  # it would go on waiting in silence
            say_at = time.monotonic() + WAIT_SAID_SECONDS[1]
            sys.stderr.write(f"faulthound: {role} {instance} waits to be registered: {why}\n")
        pause.take(threading.Event(), retry, max(0.0, deadline - time.monotonic()))
    raise TimeoutError(f"{role} {instance} was not registered within {seconds:g} s: {why}")


def end_process(why: str) -> None:
    """End this process with code 3, as ``lost``: what has no instance must not act any more."""
    _report(why)
    os._exit(LOST_CODE)


def watch(service: Service | None = None) -> Directory:
    """Return the job's directory, which a thread keeps up to date."""
    return Directory(service or Service())


class _Pause:
    """A pause that doubles, with jitter, so that the processes of a job do not come back together."""

    _seconds = RETRY_SECONDS[0]

    def take(self, ended: threading.Event, retry: float | None = None, most: float = float("inf")) -> None:
        seconds = self._seconds * _JITTER.uniform(0.5, 1.0)
        ended.wait(min(max(seconds, retry or 0.0), most))
        self._seconds = min(2 * self._seconds, RETRY_SECONDS[1])


def _refused(error: urllib.error.HTTPError) -> Exception:
    try:
        problem = json.loads(error.read(1 << 16))
        kind, detail = str(problem["type"]).rpartition("#")[2], str(problem["detail"])
    except (ValueError, KeyError, TypeError, OSError):  # a proxy's
        return OSError(f"{error.url} answered {error.code}")
    retry = error.headers.get("Retry-After", "")
    return Refused(error.code, kind, detail, float(retry) if retry.isdigit() else None)


_OWN: dict[int, str] = {}  # a forked child is another process


def _process() -> str:
    return _OWN.setdefault(pid := os.getpid(), f"{socket.gethostname()}:{pid}:{secrets.token_hex(8)}")


def _counts(given: Mapping[str, object], known: Collection[str]) -> dict[str, int]:
    """Return what is a whole number, NumPy's and torch's too, under a known name. What is not is said, and stops no job."""
    found = {}
    for name, count in given.items():
        with contextlib.suppress(TypeError, ValueError):
            if name in known and 0 <= index(count) < 1 << 62:  # type: ignore[arg-type]
                found[name] = index(count)  # type: ignore[arg-type]
        if name not in found:
            _say(f"{name} as {type(count).__name__} is left out: {', '.join(known)} are whole numbers from 0 on")
    return found


def _say(what: str) -> None:
    if what not in _SAID and len(_SAID) < MOST_SAID:
        _SAID.add(what)
        sys.stderr.write(f"faulthound: {what}\n")


def _report(why: str) -> None:
    _say(f"this process has lost its role: {why}")
