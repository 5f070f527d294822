"""Under which names a scheduler knows the instances of a role: ``rollout-3``, ``rollout_3`` or ``rollout3``."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from service.client import resource

if TYPE_CHECKING:
    from service.client import Connection

Seat = tuple[str, str]  # role and instance
MOST_NAMED = 8


class Nameless(Exception):
    """Which of the scheduler's names is the instance's cannot be said; the message gives the reason."""


def forms(role: str, instance: str) -> tuple[str, str, str]:
    """Return the names that an instance may have."""
    return f"{role}-{instance}", f"{role}_{instance}", f"{role}{instance}"


def name_of(seat: Seat, names: Collection[str], seats: Collection[Seat]) -> str:
    """Return the one name of an instance; raise ``Nameless`` where there is none, or several.

    ``seats``: all instances of the job. What may be the name of another of them counts for neither: ``rollout11`` is
    instance 11 of rollout, or instance 1 of a role rollout1.
    """
    others = {name for other in seats if other != seat for name in forms(*other)}
    found = [name for name in forms(*seat) if name in names]
    own = [name for name in found if name not in others]
    if len(own) == 1:
        return own[0]
    wanted = forms(*seat)[0]
    if found:
        raise Nameless(f"which is {' '.join(seat)} cannot be decided of {', '.join(found)}: call it {wanted} alone")
    there = ", ".join(sorted(names)[:MOST_NAMED]) or "none"
    raise Nameless(f"none is called {wanted} (there are {there})")


def directory(connection: Connection, job: str) -> list[dict[str, Any]]:
    """Return a job's instances as the service has them; none where none has registered."""
    found = connection.find(resource("jobs", job, "roles"))
    items: list[dict[str, Any]] = found["items"] if found is not None else []
    return items
