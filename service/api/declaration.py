"""What a job's owner declares: facts that no agent can see, or sees too late."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from service.api import fields
from service.api.problems import Problem
from service.reports.hostlists import parse_ranks

MOST_RANKS = 131_072
DIMENSIONS = ("tp", "pp", "dp", "cp", "ep")

Size = Annotated[int, Field(ge=1, le=MOST_RANKS)]
RankSet = Annotated[str, Field(pattern=r"^[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*$", max_length=10_000)]


class Declaration(BaseModel):
    """A job as its owner describes it. Everything is optional but the world size."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    world_size: Size = Field(description="Ranks of the job.")
    attempt: int = Field(0, ge=0, lt=1 << 31, description="Which run this is of; later runs inherit it.")
    nodes: list[fields.NodeName] = Field(
        [], max_length=MOST_RANKS, description="The rank map: the node of rank 0, of rank 1, and so on; or empty."
    )
    roles: dict[fields.Word, RankSet] = Field(
        {}, max_length=64, description="Role → its ranks, as `0-63,128`: trainer, rollout, reward, reference, critic…"
    )
    parallel: dict[fields.Word, Size] = Field(
        {}, max_length=16, description="Size of each parallel dimension: tp, pp, dp, cp, ep."
    )
    checkpoint_holders: dict[fields.NodeName, list[fields.NodeName]] = Field(
        {}, max_length=MOST_RANKS, description="Node → the nodes that hold a copy of its checkpoint shards."
    )
    minimum_nodes: int | None = Field(
        None, ge=1, le=MOST_RANKS, description="The fewest nodes that it can run on: nothing takes it below."
    )
    spares: int | None = Field(None, ge=0, le=MOST_RANKS, description="Nodes that can take an evicted one's place.")
    standby_nodes: list[fields.NodeName] = Field(
        [], max_length=MOST_RANKS, description="Free nodes on which a role that leaves its machine may be started."
    )
    node_kinds: dict[fields.NodeName, fields.Word] = Field(
        {}, max_length=MOST_RANKS,
        description="Node → its hardware and data centre in a word: nodes with the same word may replace each other.",
    )  # fmt: skip
    code_version: str | None = Field(None, max_length=255, pattern=fields.TEXT_PATTERN, description="A commit, a tag.")

    def check(self, job: str) -> None:
        """Raise a problem where parts of the declaration contradict each other."""
        errors = [*self._of_nodes(job), *self._of_roles(job), *self._of_parallel(job)]
        if errors:
            raise Problem("invalid", errors[0]["detail"], errors=errors)

    def roles_by_rank(self) -> tuple[str, ...]:
        """Return the role of each rank, empty where none is declared."""
        if not self.roles:
            return ()
        roles = [""] * self.world_size
        for role, ranks in self.roles.items():
            for rank in parse_ranks(ranks):
                roles[rank] = role
        return tuple(roles)

    def _of_nodes(self, job: str) -> list[dict[str, str]]:
        if self.nodes and len(self.nodes) != self.world_size:
            detail = (
                f"{len(self.nodes)} nodes for {self.world_size} ranks of {job}: name the node of each rank, or none"
            )
            return [{"pointer": "/nodes", "detail": detail}]
        return []

    def _of_roles(self, job: str) -> list[dict[str, str]]:
        errors = []
        for role, text in self.roles.items():
            try:
                last = max(parse_ranks(text))
            except ValueError as error:
                errors.append({"pointer": f"/roles/{role}", "detail": str(error)})
                continue
            if last >= self.world_size:
                detail = f"rank {last} of role {role} is outside job {job} (world size {self.world_size})"
                errors.append({"pointer": f"/roles/{role}", "detail": f"{detail}: declare the new world size with it"})
        return errors

    def _of_parallel(self, job: str) -> list[dict[str, str]]:
        product = 1
        for dimension, size in self.parallel.items():
            if dimension not in DIMENSIONS:
                detail = f"{dimension!a} is no parallel dimension: use {', '.join(DIMENSIONS)}"
                return [{"pointer": f"/parallel/{dimension}", "detail": detail}]
            product *= 1 if dimension == "ep" else size  # experts are spread over the ranks of the other dimensions
        if self.world_size % product:
            detail = f"the parallel sizes of {job} multiply to {product}, which does not divide {self.world_size} ranks"
            return [{"pointer": "/parallel", "detail": detail}]
        return []
