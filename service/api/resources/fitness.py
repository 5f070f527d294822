"""``GET /v1/nodes/{node}/fitness``: whether a job may be put on a node."""

from __future__ import annotations

from fastapi import Request

from service.api import fields
from service.api.node_fitness import FitnessDocument
from service.api.routing import Router
from service.api.state import service_of

router = Router("nodes")


@router.get("/v1/nodes/{node}/fitness", openapi_extra={"security": [{"HTTPBearer": []}]})
async def get_fitness(request: Request, node: fields.NodePath) -> FitnessDocument:
    """Return whether a job may be put on a node, within 200 ms. `unknown` is not unfit: go on."""
    fitness = service_of(request).fitness
    if not await fitness.let_in(request):
        return FitnessDocument(node=node, fitness="unknown", why="the database does not answer in time")
    return await fitness.find(node)
