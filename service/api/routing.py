"""What all routes do alike: answers that are msgspec structs, known query parameters only, operation ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, PlainSerializer

from analyzers.model.verdict import Verdict
from service.api.problems import Problem, ProblemDocument, documented

REFERENCE = "#/components/schemas/{name}"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
# A verdict is answered as the bytes that were published, an older program's too; a problem leaves out what is empty.
AS_DECLARED = {"Verdict": Verdict, "ProblemDocument": ProblemDocument}


class Route(APIRoute):
    """An operation. ``answer`` is the struct that it returns, None where FastAPI documents the answer itself."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        returned = get_type_hints(endpoint, include_extras=True).get("return")
        self.answer = next(filter(_is_struct, (options.get("response_model"), returned)), None)
        if self.answer is not None:
            options["response_model"] = Annotated[Any, PlainSerializer(_values)]
        options["responses"] = documented() | (options.get("responses") or {})
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Handler:
        """Return the handler, behind the check of the query parameters."""
        handle, known = self.handler(), _query_names(self.dependant)

        async def checked(request: Request) -> Response:
            if unknown := [name for name in request.query_params if name not in known]:
                raise _unknown_parameter(unknown, known, request.url.path)
            return await handle(request)

        return checked

    def handler(self) -> Handler:
        """Return what answers a request whose query parameters are known."""
        return super().get_route_handler()


class ProbeRoute(Route):
    """An operation for probes and scrapes: their addresses may carry any query parameter."""

    def get_route_handler(self) -> Handler:
        """Return the handler, without the check of the query parameters."""
        return self.handler()


class Router(APIRouter):
    """The routes of a resource. The name of a handler is the id of its operation."""

    def __init__(self, tag: str, route_class: type[Route] = Route) -> None:
        super().__init__(tags=[tag], route_class=route_class, generate_unique_id_function=lambda route: route.name)


def install(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Add the routes of the resources to an application, and their schemas to its OpenAPI document."""
    routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    # The name of a job may hold slashes: a path below a job comes before the path of the job.
    routes.sort(key=lambda route: route.path.endswith(":path}"))
    app.router.routes.extend(routes)
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _describe(generate(), routes)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(document: dict[str, Any], routes: list[Route]) -> None:
    """Add the schemas of the structs. An answer has all its fields, and so no defaults."""
    answers = [(route, route.answer) for route in routes if route.answer is not None]
    types = [answer for _, answer in answers]
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE, schema_hook=_of_model)
    for component in components.values():
        if "properties" in component:
            component["required"] = list(component["properties"])
            for field in component["properties"].values():
                field.pop("default", None)
    for (route, _), schema in zip(answers, schemas, strict=True):
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            response = operation["responses"][str(route.status_code or 200)]
            response["content"] = {"application/json": {"schema": schema}}
    for route in routes:
        if route.is_sse_stream:  # itemSchema is of OpenAPI 3.2, and the document of 3.1
            answer = document["paths"][route.path_format]["get"]["responses"]["200"]
            answer["content"]["text/event-stream"].pop("itemSchema", None)
    declared = msgspec.json.schema_components(list(AS_DECLARED.values()), ref_template=REFERENCE)[1]
    known = document.setdefault("components", {}).setdefault("schemas", {})
    known.update(json.loads(msgspec.json.encode(components | declared), object_hook=_for_generators))


def _for_generators(schema: dict[str, Any]) -> dict[str, Any]:
    """Name the type of enums, and drop ``items: false`` of pairs, which ``maxItems`` repeats: generators need it so."""
    if "enum" in schema:
        schema = {"type": "string", **schema}
    return {key: value for key, value in schema.items() if (key, value) != ("items", False)}


def _is_struct(answer: Any) -> bool:
    kind = get_origin(answer) or answer
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _values(answer: Any) -> Any:
    return msgspec.to_builtins(answer, enc_hook=BaseModel.model_dump)


def _of_model(type: Any) -> dict[str, Any]:
    """Refer to a model of pydantic, which FastAPI describes: a request's, where an answer repeats it."""
    assert issubclass(type, BaseModel), get_args(type)
    return {"$ref": REFERENCE.format(name=type.__name__)}


def _query_names(dependant: Dependant) -> frozenset[str]:
    own = frozenset(field.alias for field in dependant.query_params)
    return own.union(*map(_query_names, dependant.dependencies))


def _unknown_parameter(unknown: list[str], known: frozenset[str], path: str) -> Problem:
    names = ", ".join(sorted(known)) or "none"
    errors = [{"pointer": name[:100], "detail": f"unknown query parameter; known: {names}"} for name in unknown[:20]]
    return Problem("bad-request", f"{path} has no query parameter {unknown[0][:100]!a}; known: {names}", errors=errors)
