"""Slurm: what was approved is done there, and undone. A client of the service like any other, with a token of its own.

It remembers nothing: what is to be done the service knows, what has been done Slurm does. So it may be killed at any moment;
the next one takes up the claim that this one held, if it comes before that has run out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from service.adapters.following import AWAY, Patience
from service.adapters.scheduler import ClaimLost, HeldClaim
from service.adapters.slurm.slurm_actions import KINDS, Doing, Failed, Work, commands_of, patiently
from service.adapters.slurm.slurm_commands import Slurm, SlurmAway, undrain
from service.adapters.slurm.slurm_finding import Elsewhere, Placed, undoing, work_of
from service.adapters.slurm.slurm_output import SlurmRefused
from service.endings import Forbidden, Unreachable
from service.speech import Speech

if TYPE_CHECKING:
    from service.client import Connection

POLL_SECONDS = 1.0
UNDO_AGAIN_SECONDS = 60.0  # one that has failed can be claimed at once; what keeps it from being done takes longer
MOST_REMEMBERED = 1_000  # things said once
HELD = ("claimed", "executing")

Found = dict[str, Any]


class Scheduler:
    """Does what can be claimed, one after the other."""

    def __init__(self, connection: Connection, slurm: Slurm, speech: Speech) -> None:
        self._connection, self._slurm, self._speech = connection, slurm, speech
        self._said: dict[str, None] = {}
        self._not_before: dict[str, float] = {}  # undo that has failed → monotonic

    def serve(self, ended: Callable[[], bool] = lambda: False) -> None:
        """Do what can be claimed, for as long as the process lives."""
        patience, resumed = Patience(self._speech), False
        while not ended():
            try:
                if not resumed:
                    self.resume()
                    resumed = True
                self.once()
                patience.back()
                time.sleep(POLL_SECONDS)
            except AWAY as problem:
                patience.away(problem)

    def once(self) -> None:
        """Do what can be claimed now."""
        for found in self._claimable():
            self._take(found)

    def resume(self) -> None:
        """Finish what an earlier process with our token had begun."""
        for status in HELD:
            for found in list(self._connection.all("/v1/remediations", status=status)):
                if found["claim"] is None or found["claim"]["task"] != "do" or found["kind"] not in KINDS:
                    continue
                if (claim := HeldClaim.again(self._connection, found)) is not None:
                    self._speech.note(f"{found['id']}: taken up again under token {claim.token}")
                    self._under(claim, found)

    def plan(self) -> list[tuple[Found, list[list[str]], str]]:
        """Return what can be claimed now with its commands, or with why there are none. Nothing is changed by that."""
        planned: list[tuple[Found, list[list[str]], str]] = []
        for found in self._claimable():
            try:
                work = self._work(found, found["task"])
            except (Elsewhere, SlurmAway, SlurmRefused) as problem:
                planned.append((found, [], str(problem)))
                continue
            undo = [undrain(node) for node in work.nodes.values()]
            told = [] if work.problem else undo if found["task"] == "undo" else commands_of(work)
            planned.append((found, told, work.problem or ""))
        return planned

    def _claimable(self) -> Iterator[Found]:
        for found in list(self._connection.all("/v1/remediations", claimable="true")):
            if found["kind"] in KINDS:
                yield found
            else:
                self._once_said(f"{found['id']}: {found['kind']} is not done by this adapter: it is left to others")

    def _take(self, found: Found) -> None:
        if time.monotonic() < self._not_before.get(found["id"], 0.0):
            return
        try:
            self._work(found, found["task"])
        except Elsewhere as problem:
            self._once_said(f"{found['id']}: {problem}: it is left to others")
            return
        except (SlurmAway, SlurmRefused) as problem:
            self._once_said(f"{found['id']} is not claimed: {problem}")
            return
        try:
            claim = HeldClaim.of(self._connection, found["id"])
        except Forbidden as refusal:  # somebody was faster, or something has come in the way
            self._once_said(f"{found['id']} is not claimed: {refusal}")
            return
        self._under(claim, found)

    def _under(self, claim: HeldClaim, found: Found) -> None:
        """Act under a claim, and say what came of it. Whatever goes wrong costs this remediation only."""
        did: Found = {}
        try:
            failed = self._act(claim, found, did)
            told = ", ".join(f"{whose} {what}" for whose, what in did.items()) or "nothing was to be done"
            if failed is None:
                claim.complete(did)
                self._speech.note(f"{claim.id}: {'undone' if claim.task == 'undo' else 'done'}: {told}")
            else:
                if claim.task == "undo":
                    self._not_before[claim.id] = time.monotonic() + UNDO_AGAIN_SECONDS
                claim.fail(failed, did)
                self._speech.note(f"{claim.id} failed: {failed}" + (f"; before that: {told}" if did else ""))
        except (ClaimLost, Forbidden, Unreachable) as problem:
            self._speech.note(f"{claim.id} is given up: {problem}; done so far: {did or 'nothing'}")

    def _act(self, claim: HeldClaim, found: Found, did: Found) -> str | None:
        """Do or undo it; return why that failed, None where it is done."""
        try:
            work = patiently(lambda: self._work(found, claim.task), claim.keep)
            if work.problem is not None and claim.task == "do":
                return work.problem  # before anything is touched
            begun, doing = claim.begin(), Doing(self._slurm, claim.keep, did)
            if claim.task == "undo":
                back = begun.remediation["give_back"]  # certain only now: others may have taken some of them out
                doing.undo(patiently(lambda: undoing(self._slurm, found, back, self._is_undone), claim.keep))
            else:
                doing.do(work, begun.seconds_ago)
        except (Failed, Elsewhere) as problem:
            return str(problem)
        return None

    def _work(self, found: Found, task: str) -> Work:
        if task == "undo":
            return undoing(self._slurm, found)
        return work_of(self._slurm, found, lambda: self._placed(found))

    def _is_undone(self, incident: str, id: str) -> bool:
        try:
            other = self._connection.get(f"/v1/remediations/{quote(id, safe='')}")
        except Forbidden as refusal:
            if refusal.status != 404:
                raise
            return False  # another service's
        return bool(other["incident"] == incident and other["status"] == "undone")

    def _placed(self, found: Found) -> Placed:
        path = f"/v1/jobs/{quote(found['job'], safe='')}/ranks"
        try:
            rows = list(self._connection.all(path, attempt=found["attempt"]))
        except Forbidden as refusal:
            if refusal.status != 404:
                raise
            rows = []
        if not rows:
            return Placed()
        ago = self._connection.get("/v1/now")["at"] - max(row["last_seen_at"] for row in rows)
        return Placed(sorted({row["node"] for row in rows}), max(0.0, ago))

    def _once_said(self, text: str) -> None:
        if text in self._said:
            return
        self._speech.note(text)
        self._said[text] = None
        if len(self._said) > MOST_REMEMBERED:
            self._said.pop(next(iter(self._said)))


def shown(planned: list[tuple[Found, list[list[str]], str]]) -> list[str]:
    """Return the lines of a dry run; each command as a shell would take it."""
    import shlex

    lines = []
    for found, told, problem in planned:
        lines.append(f"# {found['id']}, to {found['task']}: {found['kind']} of {found['job']}, {found['incident']}")
        lines += [shlex.join(command) for command in told]
        lines += [f"# not done: {problem}"] if problem else []
    return lines
