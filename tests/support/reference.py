"""What docs/reference.md shows: settings, operations, the verdict's fields and fault classes, as the code describes them."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from fastapi.routing import APIRoute

from analyzers.model import verdict
from analyzers.model.fault_class import ActionKind, FaultClass
from analyzers.model.fault_classes import FAULT_CLASSES
from collectors import live
from service.api import auth
from service.api.app import create_app
from service.settings import Settings

OPEN = "none"
SCOPES = {auth.ingest: "ingest", auth.reader: "read"}
CHECKED_BY_HAND = {"/v1/nodes/{node}/fitness": "read"}  # within a bound of time of its own
OPENING = """\
# Reference

Settings of the service, REST operations, fields of the verdict, fault classes and collectors, as the code states them;
`pytest tests/house/test_reference.py --rewrite` brings this page up to date. For example, a setting and an operation:

```
FAULTHOUND_PORT=0 faulthound serve
curl http://127.0.0.1:4747/v1/now
```
"""


def page() -> str:
    """Return the page as it has to be."""
    parts = {
        "Settings": settings(),
        "Operations": operations(),
        "Verdict": fields(),
        "Fault classes": classes(),
        "Collectors": collectors(),
    }
    return OPENING + "".join(f"\n## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in parts.items())


def settings() -> Iterator[str]:
    """Yield a row for each setting: its default, its bounds, its description."""
    yield from ("| variable | default | bound | what it sets |", "| --- | --- | --- | --- |")
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    for name, field in Settings.model_fields.items():
        bounds = [
            f"{signs[kind]} {value}" for bound in field.metadata for kind, value in vars_of(bound) if kind in signs
        ]
        default = "" if field.default is None else f"`{field.default}`"
        yield f"| `FAULTHOUND_{name.upper()}` | {default} | {' '.join(bounds)} | {field.description} |"


def vars_of(bound: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes of a bound."""
    yield from ((name, getattr(bound, name)) for name in getattr(bound, "__slots__", ()) or vars(bound))


def operations() -> Iterator[str]:
    """Yield a row for each scope: the operations that a token with it may call."""
    yield (
        "What each does, takes and answers is in [openapi.json](openapi.json), and in `/openapi.json` of a running service."
    )
    yield from ("", "| scope | operations |", "| --- | --- |")
    by_scope = defaultdict(list)
    for operation, scope in scopes().items():
        by_scope[scope].append(f"`{operation}`")
    yield from (f"| {scope} | {', '.join(of)} |" for scope, of in sorted(by_scope.items()))


def scopes() -> dict[str, str]:
    """Return the scope that each described operation needs, by method and address."""
    app = create_app(Settings())
    shown = app.openapi()["paths"]
    found = {
        (route.path.replace(":path", ""), method): CHECKED_BY_HAND.get(route.path) or scope_of(route.dependant)
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    return {
        f"{method} {address}": scope
        for (address, method), scope in sorted(found.items())
        if shown.get(address, {}).get(method.lower(), {}).get("description")
    }


def scope_of(dependant: Any) -> str:
    """Return the scopes of which a caller needs one."""
    for below in dependant.dependencies:
        if below.call in SCOPES:
            return SCOPES[below.call]
        found = inspect.getclosurevars(below.call).nonlocals.get("scopes") if inspect.isfunction(below.call) else None
        found = " or ".join(found) if found else scope_of(below)
        if found != OPEN:
            return found
    return OPEN


def fields() -> Iterator[str]:
    """Yield the parts of the verdict, and a line for each field."""
    yield "Null is where nothing is known.\n"
    parts = [part for part in vars(verdict).values() if isinstance(part, type) and issubclass(part, msgspec.Struct)]
    for part in reversed(parts):
        hints = get_type_hints(part, include_extras=True)
        yield f"### {part.__name__}\n"
        yield f"{' '.join((part.__doc__ or '').split()).replace('``', '`')}\n"
        for field in msgspec.structs.fields(part):
            hint = hints[field.name]
            known = get_args(hint)[1].description if get_origin(hint) is Annotated else ""
            yield f"- `{field.encode_name}`: {known.removesuffix('; null: unknown.').removesuffix('.')}."
        yield ""


def classes() -> Iterator[str]:
    """Yield each fault class below the strongest action that it leads to by itself, with its causes."""
    yield (
        "Below the strongest action to which a class leads by itself; of a device's own event [xid.md](xid.md) decides. "
        "The cause is `machine` unless another stands behind the class."
    )
    weakest_first = get_args(ActionKind)
    rows = sorted(FAULT_CLASSES, key=lambda row: (-weakest_first.index(row.strongest), row.name))
    for action, of in groupby(rows, key=lambda row: row.strongest):
        yield f"\n### {action}\n"
        yield from (f"- `{row.name.replace('*', '…')}`: {row.words.replace('{}', '…')}{causes_of(row)}" for row in of)


def causes_of(row: FaultClass) -> str:
    """Return the causes of a class in brackets, but for a class whose only cause is the machine."""
    return "" if row.causes == ("machine",) else f" ({', '.join(row.causes)})"


def collectors() -> Iterator[str]:
    """Yield a row for each collector of the agent: what it gives, how often it runs, and how long that may take."""
    yield from ("| collector | gives | every | at most |", "| --- | --- | --- | --- |")
    for name, collector in live.registry().items():
        yield f"| `{name}` | {collector.gives} | {collector.every_seconds:g} s | {collector.limit_seconds:g} s |"
