"""Loads the packaged knowledge (analyzers/knowledge/*.toml) and a site's overrides; parsing stays in the analyzers."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from analyzers.knowledge import Knowledge, parse
from analyzers.knowledge.convictions import Weights, weights
from analyzers.knowledge.role_rules import RoleRules, role_rules
from analyzers.knowledge.typed import KnowledgeRowError

MOST_BYTES = 1_048_576  # one override document
MOST_PROBLEMS = 5  # that one message names

T = TypeVar("T")

_log = logging.getLogger(__name__)


class KnowledgeError(ValueError):
    """An override cannot be used; the message says which, why and what to do."""


def load(override: Path | None = None) -> Knowledge:
    """Return the packaged knowledge, with the documents of a TOML file, or of a directory of them, laid over it."""
    packaged = _packaged()
    return parse(packaged, _overrides(override, packaged) if override is not None else None)


def weights_of(knowledge: Knowledge) -> Weights:
    """Return how evidence about nodes weighs."""
    return _usable(weights, knowledge)


def role_rules_of(knowledge: Knowledge) -> RoleRules:
    """Return what the names of roles mean."""
    return _usable(role_rules, knowledge)


def _usable(read: Callable[[Knowledge], T], knowledge: Knowledge) -> T:
    """Read a table; a site's rows that cannot be meant must keep nothing from starting."""
    try:
        return read(knowledge)
    except KnowledgeRowError as error:
        _log.error("%s_unusable reason=%s", read.__name__, error)
        return read(load())


def _packaged() -> dict[str, str]:
    found = (item for item in resources.files("analyzers.knowledge").iterdir() if item.name.endswith(".toml"))
    return {item.name.removesuffix(".toml"): item.read_text("utf-8") for item in found}


def _overrides(path: Path, packaged: dict[str, str]) -> dict[str, str]:
    files = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    if not files:
        raise KnowledgeError(
            f"knowledge {path} holds no .toml file: name one after what it overrides: {_names(packaged)}"
        )
    return {file.stem: _checked(file, packaged) for file in files}


def _checked(file: Path, packaged: dict[str, str]) -> str:
    if not file.exists():
        raise KnowledgeError(f"knowledge {file} does not exist: correct the path or leave it out")
    if file.stem not in packaged:
        raise KnowledgeError(f"knowledge {file} overrides nothing: its name must be one of {_names(packaged)}")
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise KnowledgeError(
                f"knowledge {file} is larger than {MOST_BYTES:,} bytes: keep only the rows that differ"
            )
        text = data.decode()
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise KnowledgeError(
            f"knowledge {file} cannot be read as TOML ({problem}): correct it or leave it out"
        ) from None
    _check(file, document)
    return text


def _check(file: Path, document: dict[str, Any]) -> None:
    """Refuse a table whose rows would be read past: who wrote it counts on it."""
    from analyzers.incidents.fleet import rules
    from analyzers.knowledge import convictions
    from analyzers.knowledge.role_rules import problems as problems_of_roles
    from analyzers.model import wait_channels
    from analyzers.remediation.plan import costs
    from analyzers.verdict import curves

    checks = {
        "calibration": curves.problems,
        "conviction": convictions.problems,
        "fleet": rules.problems,
        "plan": costs.problems,
        "role_rules": problems_of_roles,
        "wait_channels": wait_channels.problems,
    }
    if file.stem in checks and (wrong := list(islice(checks[file.stem](document), MOST_PROBLEMS))):
        raise KnowledgeError(f"knowledge {file} cannot be used: {'; '.join(wrong)}")


def _names(packaged: dict[str, str]) -> str:
    return ", ".join(f"{name}.toml" for name in sorted(packaged)) or "(nothing is packaged)"
