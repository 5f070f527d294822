"""What a person decides of a remediation: approve, reject, cancel, undo. Each is asked about with its object and effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from service.cli import consent
from service.cli.asking import print_json, to
from service.cli.consent import DryRun, OptionalReason, Reason, Yes
from service.client import DEFAULT_URL, CaFile, Connection, Json, ServiceUrl, TokenFile
from service.endings import Forbidden
from service.speech import Speech

Id = Annotated[str, typer.Argument(metavar="ID", help="The remediation's id, rem-0123456789ab.")]


def approve(
    remediation: Id,
    reason: OptionalReason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Let a proposal act: a scheduler may claim it from then on. Holds, freeze, budget and breaker still stop it.

    A terminal is asked first, and told which nodes are drained and which job restarts. What has
    changed since it was shown is refused.

    \b
    Examples:
      faulthound remediations approve rem-0123456789ab
      faulthound remediations approve rem-0123456789ab --reason "seen in nvidia-smi" --yes
      faulthound remediations approve rem-0123456789ab --dry-run
    """
    with to(service, ca_file, token_file) as connection:
        answer = _decided(connection, "approve", remediation, reason, dry_run=dry_run, yes=yes)
    _print_answer(answer, dry_run=dry_run, json=json)


def reject(
    remediation: Id,
    reason: Reason,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Say that a remediation must not act, now or later.

    \b
    Examples:
      faulthound remediations reject rem-0123456789ab --reason "gpu-0413 runs our burn-in" --yes
    """
    with to(service, ca_file, token_file) as connection:
        answer = _decided(connection, "reject", remediation, reason, dry_run=dry_run, yes=yes)
    _print_answer(answer, dry_run=dry_run, json=json)


def cancel(
    remediation: Id,
    reason: Reason,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Stop a remediation that is not wanted any more, as long as no scheduler has begun. Afterwards, undo it.

    \b
    Examples:
      faulthound remediations cancel rem-0123456789ab --reason "the job runs again" --yes
    """
    with to(service, ca_file, token_file) as connection:
        answer = _decided(connection, "cancel", remediation, reason, dry_run=dry_run, yes=yes)
    _print_answer(answer, dry_run=dry_run, json=json)


def undo(
    remediation: Id,
    reason: Reason,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Ask for what was done to be taken back: a scheduler claims that, and resumes the nodes that it had drained.

    \b
    Examples:
      faulthound remediations undo rem-0123456789ab --reason "dcgmi diag -r 3 passed" --yes
    """
    with to(service, ca_file, token_file) as connection:
        answer = _decided(connection, "undo", remediation, reason, dry_run=dry_run, yes=yes)
    _print_answer(answer, dry_run=dry_run, json=json)


def _decided(
    connection: Connection, verb: str, id: str, reason: str | None, *, dry_run: bool, yes: bool
) -> Mapping[str, Any]:
    """Show what is decided, ask, and send it for the version that was shown; return what the service makes of it."""
    from service.reports.remediations import deciding, obstacles

    found, tag = connection.tagged(remediation_path(id))
    effect = deciding(verb, found, job_nodes(connection, found))
    Speech().note(f"{id}, {found['status']}, {sure(found)} sure: {found['why']}")
    if verb == "approve":
        consent.hindered(obstacles(found))
    consent.agreed(effect, yes=yes or dry_run)
    body = {} if reason is None else {"reason": reason}
    with consent.as_shown(f"faulthound remediations show {id}"):
        answer: dict[str, Any] = connection.post(
            f"{remediation_path(id)}/{verb}", body, tag, **consent.rehearsed(dry_run)
        )
    if dry_run:
        consent.would(effect)
    return answer


def _print_answer(answer: Mapping[str, Any], *, dry_run: bool, json: bool) -> None:
    from service.reports.remediations import standing

    if json:
        print_json(answer)
        return
    following = standing(answer)
    would = "would be" if dry_run else "is"
    Speech().note(f"{answer['id']} {would} {answer['status']}" + (f": {following}" if following else ""))


def sure(found: Mapping[str, Any]) -> str:
    """Return how probable it is that those who are named did it, as a percentage."""
    return f"{found['probability'] * 100:.0f} %"


def job_nodes(connection: Connection, found: Mapping[str, Any]) -> int | None:
    """Return how many nodes the job runs on, None where the service does not know."""
    from service.cli.jobs import job_path

    try:
        attempts = connection.get(f"/v1/jobs/{job_path(found['job'])}")["attempts"]
    except Forbidden:
        return None
    wanted = found.get("attempt")
    sizes = {row["number"]: row["nodes"] for row in attempts}
    return sizes.get(max(sizes, default=0) if wanted is None else wanted)


def remediation_path(remediation: str) -> str:
    """Return the address of a remediation."""
    from urllib.parse import quote

    return f"/v1/remediations/{quote(remediation, safe='')}"
