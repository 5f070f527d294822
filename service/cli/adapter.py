"""``faulthound adapter``: processes that tell other systems what happens with incidents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.asking import to
from service.client import DEFAULT_URL, CaFile, Connection, ServiceUrl, TokenFile
from service.endings import CommandError
from service.speech import Speech

if TYPE_CHECKING:
    from service.adapters.sink import Sink

adapter = typer.Typer(no_args_is_help=True, help="Tell other systems what happens with incidents: a process for each.")

TIMEOUT_SECONDS = 30.0

To = Annotated[str, typer.Option("--to", metavar="URL", help="Where to post.")]
StatePath = Annotated[
    Path, typer.Option("--state", metavar="FILE", help="Remembers how far it has come; one for each adapter.")
]
SinkTokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File that holds a bearer token for the sink.")
]
Public = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The service's address as others see it, for links; --service if left out."),
]


@adapter.command()
def cloudevents(
    to_url: To,
    state: StatePath = Path("faulthound-cloudevents.json"),
    sink_token_file: SinkTokenFile = None,
    public: Public = None,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Post everything that happens as CloudEvents 1.0 (structured JSON), in order, until it is stopped.

    Each event comes at least once, and always with the same source and id. Without a state file it
    begins with what comes.

    \b
    Examples:
      faulthound adapter cloudevents --to https://events.example/faulthound --token-file read.token
      faulthound adapter cloudevents --to http://broker-ingress/default --state /var/lib/fh/events.json
    """
    from service.adapters.cloudevents import forward
    from service.adapters.following import StateFile

    speech = Speech()
    with to(service, ca_file, token_file) as connection, _sink(to_url, "", sink_token_file, ca_file, speech) as sink:
        forward(connection, sink, StateFile(state), _page(public, connection), speech)


@adapter.command()
def alertmanager(
    to_url: To,
    state: StatePath = Path("faulthound-alertmanager.json"),
    sink_token_file: SinkTokenFile = None,
    public: Public = None,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Keep the open incidents and the alarms as alerts in Alertmanager (API v2), until it is stopped.

    They are sent when something changes and every minute, and resolved when an incident closes.

    \b
    Examples:
      faulthound adapter alertmanager --to http://alertmanager:9093 --token-file read.token
      faulthound adapter alertmanager --to http://am:9093 --public https://faulthound.example
    """
    from service.adapters.alertmanager import PATH, tell
    from service.adapters.following import StateFile

    speech = Speech()
    with to(service, ca_file, token_file) as connection, _sink(to_url, PATH, sink_token_file, ca_file, speech) as sink:
        tell(connection, sink, StateFile(state), _page(public, connection), speech)


@adapter.command()
def webhook(
    to_url: To,
    secret_file: Annotated[
        Path, typer.Option(metavar="FILE", help="File that holds the secret to sign with: whsec_ and Base64.")
    ],
    state: StatePath = Path("faulthound-webhook.json"),
    sink_token_file: SinkTokenFile = None,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Push what can be claimed to a scheduler, signed (Standard Webhooks), until it is stopped.

    A push is a knock at the door: whoever gets it claims the remediation over REST before acting. Each
    comes at least once, and always with the same webhook-id.

    \b
    Examples:
      faulthound adapter webhook --to https://scheduler.example/hook --secret-file hook.secret --token-file read.token
    """
    from service.adapters.following import StateFile
    from service.adapters.webhook import key_in, push

    speech = Speech()
    with to(service, ca_file, token_file) as connection, _sink(to_url, "", sink_token_file, ca_file, speech) as sink:
        push(connection, sink, StateFile(state), key_in(secret_file), speech)


@adapter.command()
def slurm(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands for what can be claimed now, and end.")
    ] = False,
    command_seconds: Annotated[
        float, typer.Option(min=1, max=20, metavar="S", help="The longest that a command of Slurm may take.")
    ] = 20.0,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Do in Slurm what was approved: drain nodes, have their jobs run elsewhere; undo it; until it is stopped.

    It needs scontrol and squeue as an operator of the cluster, and a token with the scope execute that
    no other process has. Where nothing is approved, nothing is done. A reason that another has given a
    node is never overwritten.

    \b
    Examples:
      faulthound adapter slurm --token-file slurm.token
      faulthound adapter slurm --token-file slurm.token --dry-run
    """
    from service.adapters.slurm.slurm import Scheduler, shown
    from service.adapters.slurm.slurm_commands import Slurm

    with to(service, ca_file, token_file) as connection:
        scheduler = Scheduler(connection, Slurm(command_seconds), Speech())
        if dry_run:
            typer.echo("\n".join(shown(scheduler.plan()) or ["# nothing can be claimed now"]))
        else:
            scheduler.serve()


@contextmanager
def _sink(url: str, path: str, token_file: Path | None, ca_file: Path | None, speech: Speech) -> Iterator[Sink]:
    """Give the sink at an address; ``path`` is what its API has below the address that people know."""
    import httpx
    import stamina

    from service.adapters.sink import Sink
    from service.client import token_in, trusted

    stamina.instrumentation.set_on_retry_hooks(())  # the sink says itself what goes wrong, once
    _check_address("--to", url)
    if not url.rstrip("/").endswith(path):
        url = url.rstrip("/") + path
    token = token_in(token_file) if token_file else ""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(headers=headers, timeout=TIMEOUT_SECONDS, verify=trusted(ca_file)) as client:
        yield Sink(client, url, speech)


def _page(public: str | None, connection: Connection) -> str:
    if public is not None:
        _check_address("--public", public)
    return (public or connection.url).rstrip("/")


def _check_address(option: str, url: str) -> None:
    """Refuse what is no address, without repeating it: it may hold a password."""
    import httpx

    try:
        known = httpx.URL(url)
    except httpx.InvalidURL:
        known = httpx.URL("")
    if known.scheme not in ("http", "https") or not known.host:
        raise CommandError(f"{option} is no address: write https://faulthound.example")
