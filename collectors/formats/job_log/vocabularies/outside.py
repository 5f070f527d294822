"""A service outside of the job that a program did not reach: a web address of a public name, with the words of a failed request.

Forms: ``HTTPSConnectionPool(host='…', port=443)`` of urllib3 2 and requests, ``Cannot connect to host …:443`` of aiohttp,
``Failed to connect to … port 443`` and ``Could not resolve host: …`` of libcurl and git, addresses with ``https://``.
A private name or address, and a port of its own, may be the job's.
"""

from __future__ import annotations

import re

NOT_REACHED = "SERVICE_NOT_REACHED"
NO_ANSWER_OF_STORE, NO_ANSWER = "UNANSWERED_STORE", "UNANSWERED_SERVICE"
"""What an exception is called whose library asks stores or services, and which names no error of them itself."""
LOOKED_AT = 2048  # characters
_NAME = r"(?P<{0}>(?:[A-Za-z0-9_-]{{1,63}}\.){{1,8}}[A-Za-z]{{2,24}})"
_PRIVATE = re.compile(
    r"\.(?:local|localdomain|internal|intranet|intra|lan|corp|home|svc|cluster|private|test|invalid)$"
)
_ADDRESS = re.compile(
    r"https://(?:[^@/\s]{1,80}@)?" + _NAME.format("web") + r"(?::443)?(?=[/\s\"'`)\]>,;]|\.?$)"
    r"|\bhost=['\"]" + _NAME.format("pool") + r"['\"], port=(?:443|80)\b"
    r"|\b" + _NAME.format("port") + r"(?::| port )443\b"
    r"|\bresolv(?:e|ing) (?:host:? )?['\"]?" + _NAME.format("resolved") + r"(?=['\"\s:.;,)]|$)"
    r"|(?P<hub>\bon the Hub\b|\b[Cc]onnect to proxy\b)"
)
_FAILED = re.compile(
    r"(?i)max retries exceeded|(?:read |connect(?:ion)? )?timed? ?out|connection (?:refused|reset|aborted|broken|error|closed)|"
    r"(?:cannot|could ?n[o']t|can't|failed to|unable to) (?:connect|reach|resolve|establish|download|fetch|access|open)|"
    r"name or service not known|name resolution|no route to host|network is unreachable|ssl(?:eof)?error|eof occurred|"
    r"remote end closed|incompleteread|ssl_error|certificate verify failed|"
    r"no such host|i/o timeout|handshake timeout|failure resolving"
)


_WORDS = ("http", "host", "443", "000", "the Hub", "resolving", "proxy")


def may_name(text: str) -> bool:
    """Whether a line may report such a failure, whatever its numbers are."""
    return any(word in text for word in _WORDS) and _FAILED.search(text) is not None


def unreached(text: str) -> tuple[int, int] | None:
    """Return where a line says that a service outside of the job was not reached; None where it does not."""
    text = text[:LOOKED_AT]
    failed = _FAILED.search(text)
    if failed is None or "endpoint URL" in text:  # botocore's words are of a store
        return None
    names = {name for found in _ADDRESS.finditer(text) for name in found.groups() if name}
    return failed.span() if names and not any(map(_PRIVATE.search, names)) else None
