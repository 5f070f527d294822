"""The agent's settings: a TOML file, then FAULTHOUND_* of the environment, then flags; the later one wins."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from collectors.live.sources.host import Roots

DEFAULT_FILE = Path("/etc/faulthound/agent.toml")
TOKEN_BYTES_MAX = 4096
SYSTEM_STATE = Path("/var/lib/faulthound")  # the systemd unit's StateDirectory
OWN_STATE = Path("~/.local/state/faulthound")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


class Misconfigured(Exception):
    """A setting cannot be used; the message names the key, the value, the bound and what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The agent's settings; docs/agent.md describes each."""

    service: str | None = None
    token: str | None = field(default=None, repr=False)  # only from FAULTHOUND_TOKEN: command lines are public
    token_file: Path | None = None
    ca_file: Path | None = None
    node: str = field(default_factory=socket.gethostname)
    state: Path = SYSTEM_STATE
    collectors: tuple[str, ...] = ()  # these only; none: all
    skip: tuple[str, ...] = ()
    spool_bytes: int = 256 << 20
    ship_seconds: float = 10.0
    deny_file: Path = Path("/etc/faulthound/deny")
    roots: Roots = field(default_factory=Roots)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # a collector's section by its name

    def current_token(self) -> str | None:
        """Return the token as it is now: its file may have been replaced since the start."""
        if self.token_file is None:
            return self.token
        try:
            with self.token_file.open("rb") as file:
                text = file.read(TOKEN_BYTES_MAX).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = f"{getattr(error, 'strerror', None) or error}): give a file that this user may read"
            raise Misconfigured(f"token_file {self.token_file} cannot be read ({why}") from error
        if not text or any(character.isspace() for character in text):
            raise Misconfigured(f"token_file {self.token_file} holds no token: write one line with nothing else in it")
        return text


def default_state(*, looking: bool) -> Path:
    """Return where an agent of this user keeps its state: the system's folder, or its own where it may not write that.

    ``looking``: to ask an agent that runs; it may be the system's, of which this user only sees the folder.
    """
    is_there = SYSTEM_STATE.exists()
    if os.access(SYSTEM_STATE if is_there else SYSTEM_STATE.parent, os.W_OK):
        return SYSTEM_STATE
    try:
        own = OWN_STATE.expanduser()
    except RuntimeError:  # a user without a home folder
        return SYSTEM_STATE
    return SYSTEM_STATE if looking and is_there and not own.exists() else own


def _service(value: Any) -> str:
    text = _text(value).rstrip("/")
    if not re.fullmatch(r"https?://[^/\s]+(/\S*)?", text):
        raise ValueError("is not an address such as https://faulthound.example:4747")
    try:
        _port = urlsplit(text).port
    except ValueError as error:
        raise ValueError(f"is not an address such as https://faulthound.example:4747 ({error})") from None
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a non-empty text")
    return value


def _node(value: Any) -> str:
    if not NAME.fullmatch(_text(value)):
        raise ValueError("must be at most 255 letters, digits, dots, dashes and underscores")
    return str(value)


def _path(value: Any) -> Path:
    return Path(_text(value))


def _names(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("must be a list of collector names")
    return tuple(name.strip() for name in names if name.strip())


def _number(least: float, most: float, kind: Callable[[Any], Any] = float) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        try:
            number = kind(value)
        except (TypeError, ValueError):
            number = None
        if number is None or isinstance(value, bool) or not least <= number <= most:
            raise ValueError(f"must be a number from {least:,} to {most:,}")
        return number

    return parse


_KEYS: dict[str, Callable[[Any], Any]] = {
    "service": _service,
    "token_file": _path,
    "ca_file": _path,
    "node": _node,
    "state": _path,
    "collectors": _names,
    "skip": _names,
    "spool_bytes": _number(1 << 20, 1 << 40, int),
    "ship_seconds": _number(0.1, 300.0),
    "deny_file": _path,
}
KEYS = tuple(_KEYS)
"""Keys of the TOML file; FAULTHOUND_<KEY> in the environment, --<key> on the command line."""


def load(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any], *, looking: bool = False
) -> Settings:
    """Return the settings of the three places; raise ``Misconfigured`` at the first that cannot be used.

    ``looking``: at the agent that runs, as ``check`` and ``status`` do.
    """
    values, roots, options = _from_file(file)
    for key in KEYS:
        variable = f"FAULTHOUND_{key.upper()}"
        if environment.get(variable):
            values[key] = _parsed(key, environment[variable], variable)
        if flags.get(key) is not None:
            values[key] = _parsed(key, flags[key], f"--{key.replace('_', '-')}")
    roots |= _roots(dict(part.partition("=")[::2] for part in flags.get("path") or ()), "--path")
    for where in ("collectors", "skip"):
        _check_collectors(values.get(where, ()), where)
    _check_collectors(options, f"{file or DEFAULT_FILE}: collector")
    values.setdefault("state", default_state(looking=looking))
    token = environment.get("FAULTHOUND_TOKEN") or None
    return Settings(**values, token=token, roots=Roots(**roots), options=options)


def _from_file(file: Path | None) -> tuple[dict[str, Any], dict[str, Path], dict[str, Any]]:
    path = file or DEFAULT_FILE
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if file is not None:
            raise Misconfigured(f"{path} does not exist: name another file with --config") from None
        return {}, {}, {}
    except OSError as error:
        next_step = "ask as root, or name another with --config"
        raise Misconfigured(f"{path} cannot be read ({error.strerror}): {next_step}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Misconfigured(f"{path} cannot be read as TOML: {error}") from error
    paths, options = document.pop("path", {}), document.pop("collector", {})
    sections = options.items() if isinstance(options, dict) else ()
    for key, value in (("path", paths), ("collector", options), *sections):
        if not isinstance(value, dict):
            raise Misconfigured(f"{path}: {key} must be a table of its own, not {value!r}")
    values = {key: _parsed(key, value, f"{path}: {key}") for key, value in document.items()}
    return values, _roots(paths, f"{path}: path"), options


def _parsed(key: str, value: Any, where: str) -> Any:
    if key not in _KEYS:
        raise Misconfigured(f"{where} is not a setting: the settings are {', '.join(KEYS)}, path and collector")
    try:
        return _KEYS[key](value)
    except ValueError as error:
        raise Misconfigured(f"{where} is {value!r} and {error}") from None


def _roots(given: Mapping[str, Any], where: str) -> dict[str, Path]:
    names = [root.name for root in dataclasses.fields(Roots)]
    for name, value in given.items():
        if name not in names or not isinstance(value, str) or not value:
            choice = f"write one of {', '.join(names)}, as proc=/host/proc"
            raise Misconfigured(f"{where} {name}={value!r} is not a root: {choice}")
    return {name: Path(value) for name, value in given.items()}


def _check_collectors(names: Iterable[str], where: str) -> None:
    from collectors.live import registry

    for name in names:
        if name not in registry():
            raise Misconfigured(f"{where}: there is no collector {name!r}: the collectors are {', '.join(registry())}")
