"""How a job goes on, in sentences, its witnesses by name, and its roles as rows. Pure; all of it is as REST sends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analyzers.remediation.types import list_some
from service.reports.instants import moment, rfc3339, span

WITNESSES = {
    "operations": "collective operations", "traffic": "network traffic", "switches": "context switches", "cpu": "CPU time",
    "gpu": "GPU activity", "stacks": "stacks that move",
}  # fmt: skip


NO_LOSS = "Its loss is unmeasured: no reader finds one in the lines of its logs, so a NaN is not seen (docs/formats.md, steps)."

NO_PAST = "Whether its steps become longer is not judged yet: about five minutes of them are needed to know how long they take."


def sentences(progress: Mapping[str, Any]) -> list[str]:
    """Say how long its steps are silent and may be, by which rhythm, if they take longer, and where it pauses."""
    allowed = progress["allowed_seconds"]
    if progress["ended_at"] is not None:
        how = progress.get("ended_how", "")
        said = (
            f"Its processes have ended, the last at {moment(rfc3339(progress['ended_at']))}{': ' if how else ''}{how}."
        )
    elif allowed is None and progress["is_outdated"]:
        said = "There is no bound on its silence yet: its first steps have just been reported."
    elif allowed is None:
        said = "There is no bound on its silence: it reports no steps."
    else:
        said = _silence(progress, allowed)
    slow = progress["slowdown"] if progress["ended_at"] is None else None
    return [
        said,
        *([] if slow is None else [_slower(slow)]),
        *([] if progress.get("has_past", True) or progress["ended_at"] is not None else [NO_PAST]),
        *([] if progress.get("has_loss", True) or progress["p99_seconds"] is None else [NO_LOSS]),
        *(_latent(one) for one in progress.get("latent", ()) if progress["ended_at"] is None),
        *(_reported(one) for one in progress.get("stragglers", ()) if progress["ended_at"] is None),
        *(_pauses(one) for one in progress["habits"]),
        *_of_unconfirmed(progress.get("unconfirmed", ())),
    ]


def _silence(progress: Mapping[str, Any], allowed: float) -> str:
    """Say for how long no step came, and may come: within what agents have sent, as they send every some seconds only."""
    silent, bound = progress["silent_now_seconds"], f"{allowed:.0f} s are allowed now{_by_its_rhythm(progress)}."
    if progress["is_outdated"]:
        newest = f"the newest ended {silent:.0f} s ago, and agents send every some seconds"
        return f"Its steps went on after the engine last looked: {newest}. Within what they have sent, {bound}"
    said = f"Within what its agents have sent, no step ended for {silent:.0f} s; {bound}"
    return said + (_goes_on(progress) if silent > allowed else "")


def _by_its_rhythm(progress: Mapping[str, Any]) -> str:
    """Say by which of its own intervals and pauses the bound is so long; empty before they are known."""
    p99 = progress["p99_seconds"]
    if p99 is None:
        return ""
    usual = f": of its {progress['intervals']:,} intervals between reports 99 % were at most {p99:.3g} s"
    longest = max([progress.get("by_chance_seconds", 0.0), *(one["seconds"] for one in progress["habits"])])
    return f"{usual}, its pauses {longest:.0f} s at most" if longest else usual


def _pauses(habit: Mapping[str, Any]) -> str:
    """Say for how long and how often it pauses, as exactly as its reports show that."""
    period, within = habit["period"], habit.get("within", 0)
    often = f"every {period:,} steps" if not within else f"every {period - within:,} to {period + within:,} steps"
    return f"It pauses for {habit['seconds']:.0f} s {often}."


def _goes_on(progress: Mapping[str, Any]) -> str:
    """Say what goes on though its steps are silent for longer than they may be: ranks that work, or that wait in a loop."""
    seen = [one["witness"] for one in progress.get("witnesses", ()) if one["state"] == "alive"]
    alive = [WITNESSES[witness] for witness in seen if witness in WITNESSES]
    return f" These are as usual: its {list_some(alive)}." if alive else ""


def _of_unconfirmed(nodes: Sequence[str]) -> list[str]:
    """Say whose word on the job is left out, and what confirms it."""
    if not nodes:
        return []
    verb, joined = ("reports", "it joined") if len(nodes) == 1 else ("report", "they joined")
    return [
        f"What {list_some(nodes)} {verb} of it is left out: {joined} after its start, and nothing confirms that.",
        "To confirm it, declare the nodes of all the job's ranks (PUT /v1/jobs/JOB), or join it in the directory of roles.",
    ]


def _slower(slow: Mapping[str, Any]) -> str:
    """Say since when its steps take longer, and by how much."""
    before, seconds = slow["before_seconds"], slow["seconds"]
    longer = f"{100 * (seconds / before - 1):.0f} % longer than before ({before:.3g} s)"
    return f"A step takes {seconds:.3g} s since step {slow['step']:,} ({moment(rfc3339(slow['since']))}), {longer}."


def _latent(one: Mapping[str, Any]) -> str:
    """Say which rank is slower than it was, and that the job does not wait for it."""
    before, seconds = one["before_seconds"], one["seconds"]
    return (
        f"Rank {one['rank']} takes {seconds:.3g} s of each step for its own work since {moment(rfc3339(one['since']))}, "
        f"{before:.3g} s before; the job's steps do not wait for it, and are as long as before."
    )


def _reported(one: Mapping[str, Any]) -> str:
    """Say whom a detector inside the job names, on which node, and what would decide where that is open."""
    nodes = list(dict.fromkeys(named["node"] for named in one["named"] if named["node"]))
    on = f" ({list_some(nodes)})" if nodes else ""
    missing = f"; {'; '.join(one['missing'])}" if one["missing"] and not one["named"] else ""
    text = f"{'; '.join(one['shown'])}{on}{missing}."
    return f"{text[:1].upper()}{text[1:]}"


ROLE_COLUMNS = ("role", "instance", "phase", "waits for", "weights", "epoch", "heard", "state")


def role_cells(row: Mapping[str, Any], at: float) -> tuple[str, ...]:
    """Return the cells of ``ROLE_COLUMNS`` of an instance at an instant."""
    does, heard = row["activity"], moment(rfc3339(row["renewed_at"]))
    silent, lease = at - row["renewed_at"], row["lease_seconds"]
    unheard = row["state"] == "serving" and silent > lease
    known_at = row["renewed_at"] if unheard else at  # what it did since then is not known
    return (
        row["role"], row["instance"], _lasting(row["phase"], does["phase_since"], known_at),
        _lasting(does["waiting_for"], does["waiting_since"], known_at), "" if row["weights"] is None else str(row["weights"]),
        str(row["epoch"]), f"{span(silent)} ago" if row["state"] == "serving" else heard,
        f"not heard for {span(silent)} (lease {span(lease)})" if unheard else row["state"],
    )  # fmt: skip


def unseen_roles(items: Sequence[Mapping[str, Any]], ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say which roles are registered and no rank of any agent: what their processes do is known by their own word alone."""
    known = {row["role"] for row in ranks}
    unseen = sorted({row["role"] for row in items if row["state"] == "serving"} - known)
    return [
        f"No agent reports a rank of {role}: start its processes with FAULTHOUND_ROLE={role}, on a node with an agent."
        for role in (unseen if ranks else ())
    ]


def unknown_roles(names: Iterable[str]) -> list[str]:
    """Say of which roles only an end is noticed, because no rule says what they are for."""
    return [
        f"What the role {name} is for is not known, so that it may stand still unnoticed: give it a row in role_rules.toml "
        "(--knowledge), or another name."
        for name in names
    ]


def _lasting(what: str, since: float | None, at: float) -> str:
    return f"{what} for {span(at - since)}" if what and since is not None else what
