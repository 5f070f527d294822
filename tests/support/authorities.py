"""The system's authorities, read once a process: each HTTP client of a test would read its 140 certificates in 30 ms."""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

import certifi

_create = ssl.create_default_context


@cache
def _of_the_system(**places: str) -> ssl.SSLContext:
    return _create(**places)


def _created(*purpose: Any, **options: Any) -> ssl.SSLContext:
    system = {"cafile": {certifi.where(), os.environ.get("SSL_CERT_FILE")}, "capath": {os.environ.get("SSL_CERT_DIR")}}
    is_shared = options and not purpose and all(value in system.get(name, ()) for name, value in options.items())
    return _of_the_system(**options) if is_shared and all(options.values()) else _create(*purpose, **options)


def read_once() -> None:
    """Share one context among all clients that trust the system's authorities alone, as httpx asks for it."""
    ssl.create_default_context = _created
