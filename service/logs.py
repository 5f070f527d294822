"""The log of a process of the service: ours and the libraries', to stderr, in one form."""

from __future__ import annotations

import io
import logging
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from collectors.records.printable import printable
from service.settings import Settings


def _printable(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Show what steers a terminal as escapes: paths and errors are a sender's words. A log line is one line."""
    return {
        name: printable(value).replace("\n", "\\n") if isinstance(value, str) and name != "exception" else value
        for name, value in event.items()
    }


def _traceback(to: TextIO, failed: structlog.typing.ExcInfo) -> None:
    """Write a traceback; what an exception says is a sender's words too."""
    written = io.StringIO()
    structlog.dev.plain_traceback(written, failed)
    to.write(printable(written.getvalue()))


def write_logs(settings: Settings) -> None:
    """Send our log and the libraries' to stderr in one form; raise ``ValueError`` for an unknown level."""
    level = logging.getLevelNamesMapping().get(settings.log_level.upper())
    if level is None:
        raise ValueError(f"FAULTHOUND_LOG_LEVEL is {settings.log_level!r}: choose debug, info, warning or error")
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: Any = (
        structlog.processors.JSONRenderer()
        if settings.log_json
        else structlog.dev.ConsoleRenderer(colors=False, exception_formatter=_traceback)
    )
    structlog.configure(
        [*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    tail = [remove, structlog.processors.format_exc_info, last] if settings.log_json else [remove, _printable, last]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=tail))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for chatty in ("uvicorn.error", "alembic", "httpx"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
