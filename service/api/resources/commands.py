"""Commands to agents: a closed set of verbs, sent to a node or to a job's nodes, delivered once by a long poll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Body, Query, Request
from pydantic import Field
from sqlalchemy import func, select

from analyzers.model.doc import doc
from service.api import answers, auth, fields, paging
from service.api.auth import Caller
from service.api.problems import Problem, documented, not_found
from service.api.resources.jobs import newest_ranks
from service.api.resources.nodes import reported_name
from service.api.routing import Router
from service.api.state import Service, service_of
from service.clock import now
from service.store.models import Command as Row
from service.store.models import Node

LONGEST_POLL_SECONDS = 30.0
MOST_UNTAKEN = 32  # of one node
MOST_IDS = 256

router = Router("commands")
Ranks = Annotated[list[Annotated[int, Field(ge=0, le=1 << 24)]], Field(max_length=65_536)]
Roles = Annotated[dict[Annotated[str, Field(min_length=1, max_length=64)], Ranks], Field(max_length=64)]
Wait = Annotated[
    float, Query(ge=0, le=LONGEST_POLL_SECONDS, allow_inf_nan=False, description="Wait so long for one to come.")
]
CollectorName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$", description="The name of a collector.")]


class StacksArguments(fields.Body):
    """Which processes, and how deep."""

    native: Annotated[bool, Field(description="C frames too: it pauses the process for longer.")] = False
    ranks: Annotated[Ranks | None, Field(description="Of these ranks only, of every role.")] = None
    roles: Annotated[Roles | None, Field(description="Of these ranks only: role → its ranks; beside `ranks`.")] = None


class RecordersArguments(fields.Body):
    """Which processes."""

    ranks: Annotated[Ranks | None, Field(description="Of these ranks only, of every role.")] = None
    roles: Annotated[Roles | None, Field(description="Of these ranks only: role → its ranks; beside `ranks`.")] = None


class ReadArguments(fields.Body):
    """Which collector is to run now."""

    collector: CollectorName


class RateArguments(ReadArguments):
    """How often a collector is to run, and for how long."""

    every_seconds: float = Field(ge=0.1, le=3_600, description="The interval between two runs.")
    for_seconds: float = Field(gt=0, le=600, description="For how long; then the usual interval holds again.")


class Stacks(fields.Body):
    """Collect stacks now."""

    verb: Literal["stacks"] = Field(description="The verb.")
    arguments: StacksArguments = Field(StacksArguments(), description="Its arguments.")


class Recorders(fields.Body):
    """Collect flight-recorder dumps now."""

    verb: Literal["recorders"] = Field(description="The verb.")
    arguments: RecordersArguments = Field(RecordersArguments(), description="Its arguments.")


class Read(fields.Body):
    """Run a collector now."""

    verb: Literal["read"] = Field(description="The verb.")
    arguments: ReadArguments = Field(description="Its arguments.")


class Rate(fields.Body):
    """Run a collector more often for a while."""

    verb: Literal["rate"] = Field(description="The verb.")
    arguments: RateArguments = Field(description="Its arguments.")


Command = Annotated[Stacks | Recorders | Read | Rate, Body(discriminator="verb")]


class TakenCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command as its agent gets it."""

    id: Annotated[str, doc("Its id, which the agent's result names.")]
    verb: Annotated[str, doc("stacks, recorders, profile, read or rate.")]
    arguments: Annotated[dict[str, Any], doc("The verb's arguments.")]
    expires_at: Annotated[float, doc("UTC seconds, by the service's clock.")]


class TakenCommands(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is to do."""

    commands: Annotated[tuple[TakenCommand, ...], doc("The commands, the oldest first.")]


class CommandDocument(TakenCommand, frozen=True, kw_only=True):
    """A command and its outcome."""

    node: Annotated[str, doc("The node whose agent it is for.")]
    asked_at: Annotated[float, doc("When it was sent, UTC seconds.")]
    asked_by: Annotated[str, doc("The caller that sent it.")]
    taken_at: Annotated[float | None, doc("When its agent took it; null: it has not.")]
    outcome: Annotated[str | None, doc("done, nothing, failed, denied, unknown or expired; null: not yet.")]
    text: Annotated[str, doc("What the agent reports of it.")]
    ended_at: Annotated[float | None, doc("When it ended; null: it has not.")]


class CommandList(msgspec.Struct, frozen=True, kw_only=True):
    """Several commands."""

    items: Annotated[tuple[CommandDocument, ...], doc("The commands.")]


@router.get("/v1/nodes/{node}/commands", responses=documented("too-many-requests"))
async def list_waiting_commands(
    request: Request, node: fields.NodePath, caller: Annotated[Caller, auth.INGEST], wait_seconds: Wait = 0.0
) -> TakenCommands:
    """List the commands that wait for a node's agent, without taking them."""
    return await _found(request, node, caller, wait_seconds, service_of(request).commands.untaken)


@router.post("/v1/nodes/{node}/commands/take", responses=documented("too-many-requests"))
async def take_commands(
    request: Request, node: fields.NodePath, caller: Annotated[Caller, auth.INGEST], wait_seconds: Wait = 0.0
) -> TakenCommands:
    """Take the commands for a node's agent. Each is delivered once; no command in time is an empty list."""
    return await _found(request, node, caller, wait_seconds, service_of(request).commands.take)


async def _found(
    request: Request, node: str, caller: Caller, wait_seconds: float, find: Callable[[str], Sequence[Row]]
) -> TakenCommands:
    auth.check_node(request, caller, node)
    if not await service_of(request).waiting.wait(node, wait_seconds):
        return TakenCommands(commands=())
    if await request.is_disconnected():  # a command that is taken for a lost connection never arrives
        return TakenCommands(commands=())
    found = await asyncio.to_thread(find, node)
    return TakenCommands(commands=tuple(paging.from_row(command, TakenCommand) for command in found))


@router.post(
    "/v1/nodes/{node}/commands", status_code=202,
    responses=documented("not-found", "conflict", "too-many-requests"),
)  # fmt: skip
def command_node(
    request: Request,
    node: fields.NodePath,
    asked: Command,
    caller: Annotated[Caller, auth.REMEDIATE],
    key: answers.Key = None,
) -> CommandList:
    """Ask one node's agent to do something now."""
    service = service_of(request)

    def ask() -> CommandList:
        with service.database.session() as session:
            name = reported_name(session, node)
            if session.get(Node, name) is None:
                raise not_found("node", node, "/v1/nodes lists those that have reported")
        return _sent(service, asked, {name: _arguments(asked)}, caller)

    return service.answers.once(caller.actor, key, (f"{node}/commands", asked), CommandList, ask)


@router.post(
    "/v1/jobs/{job:path}/commands", status_code=202,
    responses=documented("not-found", "conflict", "too-many-requests"),
)  # fmt: skip
def command_job(
    request: Request,
    job: fields.JobPath,
    asked: Command,
    caller: Annotated[Caller, auth.REMEDIATE],
    key: answers.Key = None,
) -> CommandList:
    """Ask the agents of a job's newest attempt, of the nodes with `arguments.ranks` or `arguments.roles` where given."""
    service = service_of(request)

    def ask() -> CommandList:
        return _sent(service, asked, _by_node(newest_ranks(service, job), asked, job), caller)

    return service.answers.once(caller.actor, key, (f"{job}/commands", asked), CommandList, ask)


@router.get("/v1/commands", dependencies=[auth.READ])
def list_commands(
    request: Request,
    id: Annotated[list[fields.IdPath], Query(min_length=1, max_length=MOST_IDS, description="Their ids.")],
) -> CommandList:
    """Get several commands by their ids; those that are unknown are left out."""
    return _list(service_of(request).commands.find(id))


@router.get("/v1/commands/{id}", dependencies=[auth.READ], responses=documented("not-found"))
def get_command(request: Request, id: fields.IdPath) -> CommandDocument:
    """Get a command and what became of it."""
    command = service_of(request).commands.get(id)
    if command is None:
        raise not_found(
            "command",
            id,
            "it was removed, or never sent: POST /v1/jobs/{job}/commands returns ids",
        )
    return _document(command)


def _sent(service: Service, asked: Command, arguments: Mapping[str, dict[str, Any]], caller: Caller) -> CommandList:
    _check_room(service, list(arguments))
    seconds = service.settings.command_seconds
    commands = service.commands.ask(arguments.items(), asked.verb, caller.actor, seconds)
    service.waiting.wake(arguments)
    return _list(commands)


def _arguments(asked: Command) -> dict[str, Any]:
    return asked.arguments.model_dump(exclude_none=True)


def _by_node(placed: Sequence[tuple[int, str, str]], asked: Command, job: str) -> dict[str, dict[str, Any]]:
    """Return for each node the arguments of its command: of the ranks that were asked for, its own."""
    own = _arguments(asked)
    ranks, roles = own.pop("ranks", None), own.pop("roles", None)
    if hasattr(asked.arguments, "ranks"):
        own["job"] = job  # another job's ranks on the same node are left alone
    every = ranks is None and roles is None
    wanted, of_role = frozenset(ranks or ()), {role: frozenset(found) for role, found in (roles or {}).items()}
    where: dict[str, dict[str, Any]] = {}
    for rank, role, node in placed:
        by_role = rank in of_role.get(role, ())
        if every or rank in wanted or by_role:
            arguments = where.setdefault(node, dict(own))
        if rank in wanted:
            arguments.setdefault("ranks", []).append(rank)
        if by_role:
            arguments.setdefault("roles", {}).setdefault(role, []).append(rank)
    if not where:
        which = "no rank" if every else f"none of the ranks {_in_words(wanted, of_role)}"
        raise Problem(
            "not-found", f"{which} of job {job} is placed on a node: /v1/jobs/{job}/ranks lists those that are"
        )
    return where


def _in_words(ranks: Collection[int], of_role: Mapping[str, Collection[int]]) -> str:
    seats = [str(rank) for rank in sorted(ranks)]
    seats += [f"{role}={rank}" for role, found in sorted(of_role.items()) for rank in sorted(found)]
    return ", ".join(seats[:10])


def _check_room(service: Service, nodes: Sequence[str]) -> None:
    waiting = select(Row.node).where(Row.taken_at.is_(None), Row.expires_at > now())
    with service.database.session() as session:
        crowded = set(session.scalars(waiting.group_by(Row.node).having(func.count() >= MOST_UNTAKEN)))
    if full := next((node for node in nodes if node in crowded), None):
        raise Problem(
            "too-many-requests", f"{MOST_UNTAKEN} commands wait for {full}, the most of a node: check that its agent runs",
            retry_after_seconds=service.settings.command_seconds,
        )  # fmt: skip


def _document(command: Row) -> CommandDocument:
    return paging.from_row(command, CommandDocument)


def _list(commands: Sequence[Row]) -> CommandList:
    return CommandList(items=tuple(map(_document, commands)))
