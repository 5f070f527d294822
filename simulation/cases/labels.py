"""The label of a simulated case as it stands in ``labels.toml``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CaseLabel:
    """What is known of one case; the words are those of docs/evaluate.md."""

    path: str
    fault: str
    cause: tuple[str, ...]
    culprits: tuple[str, ...]
    masked: tuple[str, ...] = ()
    fault_class: tuple[str, ...] = ()
    decidable: bool = True

    def toml(self) -> str:
        """Return it as one ``[[case]]``: of texts, lists of texts and booleans JSON is TOML."""
        keys = {
            "path": self.path, "fault": self.fault, "cause": self.cause, "class": self.fault_class,
            "culprits": self.culprits, "masked": self.masked, "decidable": self.decidable, "origin": "simulator",
        }  # fmt: skip
        kept = {key: value for key, value in keys.items() if value or key not in ("class", "masked")}
        return "[[case]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in kept.items())


def document(labels: Iterable[CaseLabel]) -> str:
    """Return the whole file."""
    return "\n".join(label.toml() for label in labels)


def named_ranks(ranks: Iterable[int]) -> tuple[str, ...]:
    """Return ranks as culprits."""
    return tuple(f"rank:{rank}" for rank in sorted(ranks))
