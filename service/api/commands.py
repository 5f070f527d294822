"""Commands to agents: a closed set of verbs, asked of a node or of a job's nodes, handed out once by a long poll."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import func, select

from service.api import answers, auth, fields
from service.api.auth import Caller
from service.api.jobs import newest_ranks
from service.api.problems import Problem, documented, not_found
from service.api.state import Service, of
from service.clock import now
from service.store.models import Command, Node

LONGEST_POLL_SECONDS = 30.0
MOST_UNTAKEN = 32  # of one node
MOST_IDS = 256

router = APIRouter(tags=["commands"])
Ranks = Annotated[list[Annotated[int, Field(ge=0, le=1 << 24)]], Field(max_length=65_536)]
CollectorName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class StacksArguments(_Strict):
    """Which processes, and how deep."""

    native: Annotated[bool, Field(description="C frames too: it pauses the process for longer.")] = False
    ranks: Annotated[Ranks | None, Field(description="Of these ranks only.")] = None


class RecordersArguments(_Strict):
    """Which processes."""

    ranks: Annotated[Ranks | None, Field(description="Of these ranks only.")] = None


class ReadArguments(_Strict):
    """Which collector is to run now."""

    collector: CollectorName


class RateArguments(_Strict):
    """How often a collector is to run, and for how long."""

    collector: CollectorName
    every_seconds: float = Field(ge=0.1, le=3_600)
    for_seconds: float = Field(gt=0, le=600)


class Stacks(_Strict):
    """Stacks now."""

    verb: Literal["stacks"]
    arguments: StacksArguments = StacksArguments()


class Recorders(_Strict):
    """Flight-recorder dumps now."""

    verb: Literal["recorders"]
    arguments: RecordersArguments = RecordersArguments()


class Read(_Strict):
    """Run a collector now."""

    verb: Literal["read"]
    arguments: ReadArguments


class Rate(_Strict):
    """Run a collector more often for a while."""

    verb: Literal["rate"]
    arguments: RateArguments


Wish = Annotated[Stacks | Recorders | Read | Rate, Body(discriminator="verb")]


class Handed(BaseModel):
    """A command as its agent gets it."""

    id: str
    verb: str
    arguments: dict[str, Any]
    expires_at: float = Field(description="UTC seconds, by the service's clock.")


class HandedOut(BaseModel):
    """What an agent is to do."""

    commands: list[Handed]


class CommandDocument(Handed):
    """A command and what became of it."""

    node: str
    asked_at: float
    asked_by: str
    taken_at: float | None = Field(description="When its agent took it.")
    outcome: str | None = Field(description="done, nothing, failed, denied, unknown or expired; null: not yet.")
    text: str
    ended_at: float | None


class CommandList(BaseModel):
    """Several commands."""

    items: list[CommandDocument]


@router.get("/v1/nodes/{node}/commands", operation_id="take_commands", responses=documented("too-many-requests"))
async def take_commands(
    request: Request,
    node: fields.NodePath,
    caller: Annotated[Caller, auth.INGEST],
    wait_seconds: Annotated[
        float, Query(ge=0, le=LONGEST_POLL_SECONDS, allow_inf_nan=False, description="Wait so long for one to come.")
    ] = 0.0,
) -> HandedOut:
    """Take what a node's agent is to do. Each command is handed out once; no command in time is an empty list."""
    service = of(request)
    auth.check_node(request, caller, node)
    if not await service.waiting.wait(node, wait_seconds):
        return HandedOut(commands=[])
    if await request.is_disconnected():  # what is taken for nobody is lost to everybody
        return HandedOut(commands=[])
    taken = await asyncio.to_thread(service.commands.take, node)
    return HandedOut(commands=[Handed(**_fields(Handed, command)) for command in taken])


@router.post(
    "/v1/nodes/{node}/commands", operation_id="command_node", status_code=202,
    responses=documented("not-found", "conflict", "too-many-requests"),
)  # fmt: skip
def command_node(
    request: Request,
    node: fields.NodePath,
    wish: Wish,
    caller: Annotated[Caller, auth.REMEDIATE],
    key: answers.Key = None,
) -> CommandList:
    """Ask one node's agent to do something now."""
    service = of(request)

    def ask() -> CommandList:
        with service.database.session() as session:
            if session.get(Node, node) is None:
                raise not_found("node", node, "/v1/nodes lists those that have reported")
        return _asked(service, wish, {node: _arguments(wish)}, caller)

    return service.answers.once(caller.actor, key, (f"{node}/commands", wish), CommandList, ask)


@router.post(
    "/v1/jobs/{job:path}/commands", operation_id="command_job", status_code=202,
    responses=documented("not-found", "conflict", "too-many-requests"),
)  # fmt: skip
def command_job(
    request: Request,
    job: fields.JobPath,
    wish: Wish,
    caller: Annotated[Caller, auth.REMEDIATE],
    key: answers.Key = None,
) -> CommandList:
    """Ask the agents of a job's newest attempt, those of the nodes with `arguments.ranks` where ranks are given."""
    service = of(request)

    def ask() -> CommandList:
        return _asked(service, wish, _by_node(newest_ranks(service, job), wish, job), caller)

    return service.answers.once(caller.actor, key, (f"{job}/commands", wish), CommandList, ask)


@router.get("/v1/commands", operation_id="list_commands", dependencies=[auth.READ], responses=documented())
def list_commands(
    request: Request,
    id: Annotated[list[fields.IdPath], Query(min_length=1, max_length=MOST_IDS, description="Which.")],
) -> CommandList:
    """Get several commands by their ids; those that are unknown are left out."""
    return CommandList(items=[_document(command) for command in of(request).commands.of(id)])


@router.get(
    "/v1/commands/{id}", operation_id="get_command", dependencies=[auth.READ], responses=documented("not-found")
)
def get_command(request: Request, id: fields.IdPath) -> CommandDocument:
    """Get a command and what became of it."""
    command = of(request).commands.get(id)
    if command is None:
        raise not_found("command", id, "it was removed, or never asked")
    return _document(command)


def _asked(service: Service, wish: Wish, asked: Mapping[str, dict[str, Any]], caller: Caller) -> CommandList:
    _check_room(service, list(asked))
    seconds = service.settings.command_seconds
    commands = service.commands.ask(asked.items(), wish.verb, caller.actor, seconds)
    service.waiting.wake(asked)
    return CommandList(items=[_document(command) for command in commands])


def _arguments(wish: Wish) -> dict[str, Any]:
    return wish.arguments.model_dump(exclude_none=True)


def _by_node(placed: Sequence[tuple[int, str]], wish: Wish, job: str) -> dict[str, dict[str, Any]]:
    """Return for each node the arguments of its command: of the ranks that were asked for, its own."""
    asked = getattr(wish.arguments, "ranks", None)
    wanted = None if asked is None else frozenset(asked)
    where: dict[str, list[int]] = {}
    for rank, node in placed:
        if wanted is None or rank in wanted:
            where.setdefault(node, []).append(rank)
    if not where:
        which = "no rank" if wanted is None else f"none of the ranks {', '.join(map(str, sorted(wanted)[:10]))}"
        raise Problem("not-found", f"{which} of job {job} is placed on a node: look at /v1/jobs/{job}/ranks")
    own = _arguments(wish)
    if hasattr(wish.arguments, "ranks"):
        own["job"] = job  # another job's ranks on the same node are left alone
    return {node: own if wanted is None else {**own, "ranks": ranks} for node, ranks in where.items()}


def _check_room(service: Service, nodes: Sequence[str]) -> None:
    waiting = select(Command.node).where(Command.taken_at.is_(None), Command.expires_at > now())
    with service.database.session() as session:
        crowded = set(session.scalars(waiting.group_by(Command.node).having(func.count() >= MOST_UNTAKEN)))
    if full := next((node for node in nodes if node in crowded), None):
        raise Problem(
            "too-many-requests", f"{MOST_UNTAKEN} commands wait for {full} already: is its agent running?",
            retry_after_seconds=service.settings.command_seconds,
        )  # fmt: skip


def _fields(model: type[BaseModel], command: Command) -> dict[str, Any]:
    return {name: getattr(command, name) for name in model.model_fields}


def _document(command: Command) -> CommandDocument:
    return CommandDocument(**_fields(CommandDocument, command))
