"""What docs/reference.md shows: settings, operations, fault classes and collectors, as the code describes them."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any, get_args

from fastapi.routing import APIRoute

from analyzers.model.fault_class import ActionKind, FaultClass
from analyzers.model.fault_classes import FAULT_CLASSES
from collectors import live
from service.api import auth
from service.api.app import create_app
from service.settings import Settings
from tests.support.sources import REPOSITORY

OPEN = "none"
SCOPES = {auth.ingest: "ingest", auth.reader: "read"}
CHECKED_BY_HAND = {"/v1/nodes/{node}/fitness": "read"}  # within a bound of time of its own
EXPLAINING = ("analyzers.md", "xid.md")  # whose rows say more of their classes than the words of a verdict
OPENING = """\
# Reference

Settings of the service, scopes, fault classes and collectors, as the code states them.

```
FAULTHOUND_PORT=0 faulthound serve
```
"""


def page() -> str:
    """Return the page as it has to be."""
    parts = {
        "Settings": settings(),
        "Operations": operations(),
        "Fault classes": classes(),
        "Collectors": collectors(),
    }
    return OPENING + "".join(f"\n## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in parts.items())


def settings() -> Iterator[str]:
    """Yield a line for each setting: its default, its bounds, its description."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    for name, field in Settings.model_fields.items():
        bounds = [
            f"{signs[kind]}{value}" for bound in field.metadata for kind, value in vars_of(bound) if kind in signs
        ]
        limits = [] if field.default is None else [f"`{field.default}`"]
        limits += bounds
        shown = f" ({', '.join(limits)})" if limits else ""
        yield f"- `FAULTHOUND_{name.upper()}`{shown}: {field.description}"


def vars_of(bound: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes of a bound."""
    yield from ((name, getattr(bound, name)) for name in getattr(bound, "__slots__", ()) or vars(bound))


def operations() -> Iterator[str]:
    """Yield a line for each scope: the operations that a token with it may call, but for the many that read."""
    yield (
        "[openapi.json](openapi.json) has the details. A `GET` needs `read` unless it stands here; `admin` has every scope. "
        "Without a method it is a `POST`.\n"
    )
    by_scope = defaultdict(list)
    for operation, scope in scopes().items():
        if scope != "read" or not operation.startswith("GET "):
            by_scope[scope].append(f"`{operation.removeprefix('POST ')}`")
    yield from (f"- {scope}: {', '.join(of)}" for scope, of in sorted(by_scope.items()))


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


def classes() -> Iterator[str]:
    """Yield each fault class below the strongest action that it leads to by itself, with its causes; of none the name alone."""
    yield (
        "Below the strongest action to which a class leads by itself; of a device's own event [xid.md](xid.md) decides. "
        "The cause is `machine` unless another stands behind the class. A linked page explains the classes behind it, "
        "a verdict's `why` those that lead to none."
    )
    weakest_first = get_args(ActionKind)
    rows = sorted(FAULT_CLASSES, key=lambda row: (-weakest_first.index(row.strongest), row.name))
    for action, of in groupby(rows, key=lambda row: row.strongest):
        yield f"\n### {action}\n"
        if action == "none":
            yield ", ".join(f"`{row.name.replace('*', '…')}`" for row in of)
            continue
        kept = list(of)
        yield from (
            f"- {shown(row)}: {row.words.replace('{}', '…')}{causes_of(row)}" for row in kept if not page_of(row)
        )
        for name in EXPLAINING:
            if rows := [f"{shown(row)}{causes_of(row)}" for row in kept if page_of(row) == name]:
                yield f"- [{name}]({name}): {', '.join(rows)}"


def shown(row: FaultClass) -> str:
    """Return the name of a class as pages write it."""
    return f"`{row.name.replace('*', '…')}`"


@cache
def explained(name: str) -> frozenset[str]:
    """Return the classes that a page explains, each at the beginning of a line."""
    lines = (REPOSITORY / "docs" / name).read_text(encoding="utf-8").splitlines()
    firsts = (re.match(r"- ((?:`\w+`(?:, )?)+):|\| (\w+(?:, \w+)*) \|", line) for line in lines)
    return frozenset(word for first in firsts if first for word in re.findall(r"\w+", first[1] or first[2]))


def page_of(row: FaultClass) -> str | None:
    """Return the page that explains a class, None where this one does."""
    return next((name for name in EXPLAINING if row.name in explained(name)), None)


def causes_of(row: FaultClass) -> str:
    """Return the causes of a class in brackets, but for a class whose only cause is the machine."""
    return "" if row.causes == ("machine",) else f" ({', '.join(row.causes)})"


def collectors() -> Iterator[str]:
    """Yield a line for each collector of the agent: how often it runs, how long that may take, and what it gives."""
    for name, collector in live.registry().items():
        bounds = f"every {collector.every_seconds:g} s, ≤{collector.limit_seconds:g} s"
        yield f"- `{name}` ({bounds}): {collector.gives}"
