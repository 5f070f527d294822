"""An error of a device as a program saw it, beside what the kernel reports of that device: the kernel's event is the cause.

An illegal access is the program's two times in three, and an error of a GPU that has failed is only how the program met that.
"""

from __future__ import annotations

from dataclasses import Field, replace
from typing import Any, ClassVar, Protocol, TypeVar

from analyzers.model.fault_classes import has
from analyzers.model.finding import Evidence, Finding, Suspect


class _Root(Protocol):
    """What is used of a root that is considered (``correlate.Candidate``)."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def finding(self) -> Finding: ...
    @property
    def suspects(self) -> tuple[Suspect, ...]: ...
    @property
    def certain(self) -> bool: ...
    @property
    def support(self) -> tuple[tuple[str, Evidence], ...]: ...
    @property
    def ranks(self) -> frozenset[int]: ...


Root = TypeVar("Root", bound=_Root)


def decides(old: Root, new: Root, least: float) -> bool:
    """Whether a device's own event, surer than ``least``, shows the cause of an error that a log leaves open."""
    of_machine = (new.finding.family, new.finding.cause) == ("hardware", "machine")
    is_open = old.finding.cause == "unknown" and has(old.finding.fault_class, "device_decides")
    return is_open and of_machine and new.certain and max(one.strength for one in new.suspects) > least


def explained(old: Root, new: Root) -> Root:
    """Return the device's event as the root, with the ranks that met it: what it asks for is done, and no more."""
    ranks = tuple(sorted(old.ranks | new.ranks))
    suspects = tuple(replace(one, ranks=ranks) for one in new.suspects)
    shown = [(old.finding.analyzer, each) for one in old.suspects for each in one.evidence or (Evidence(text=one.why),)]
    met = replace(
        new.finding, symptom=old.finding.symptom, victims=old.finding.victims, scope=old.finding.scope,
        together=len(suspects) > 1, missing=(*new.finding.missing, *old.finding.missing),
    )  # fmt: skip
    return replace(new, finding=met, suspects=suspects, support=(*new.support, *old.support, *shown))
