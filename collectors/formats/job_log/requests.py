"""A server that serves on: what it logged of one request did not bring it down.

A handler of requests raises, the server answers that request with an error, and goes on with the others. What ends a server is
followed by no further answers, or by the death of its engine; a server that is started again begins a life of its own. A plain
shutdown after further answers was asked for.
Formats: uvicorn's and gunicorn's access lines, vLLM 0.4 to 0.16, SGLang 0.3 to 0.5.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from collectors.formats.job_log.job_lines import Line, peel
from collectors.formats.job_log.tracebacks import HEADER, Assembler
from collectors.records import LogEvent

MANY = 4  # so many answers after an exception: a failure later is another story
BESIDE_LINES = 2  # uvicorn writes that it answered 500 right before the exception, others right below it
MAX_LIVES = 64  # of one stream
MAX_STREAMS = 1000
WORDS = (
    " HTTP/", "throughput", "Started server process", "Application startup complete", "Starting vLLM API server", "Shutting down",
    "Finished server process", "server_args=", "sigquit", "EngineDeadError", "died unexpectedly",
)  # fmt: skip
"""A line with none of these is no answer, and neither the begin nor the end of a server."""
_ANSWERED = re.compile(
    r'"(?:POST|PUT|PATCH) \S{1,400} HTTP/\d(?:\.\d)?" [24]\d\d\b'  # a GET may be of its health or its metrics
    r"|\bAvg (?:prompt|generation) throughput: (?!0\.0 )\d|gen throughput \(token/s\): (?!0\.00?,)\d"
)
_BEGINS = re.compile(r"Started server process|Starting vLLM API server|\bserver_args=")
_STOPS = re.compile(r"Shutting down\s*$|Finished server process")
_DIES = re.compile(r"Received sigquit|EngineDeadError|died unexpectedly, shutting down")
_FAILED = re.compile(r'" 500\b')
_HANDLER = re.compile(
    r"(?:^|/)(?:uvicorn|starlette|fastapi|aiohttp/web\w*|tornado|flask|werkzeug|gunicorn|hypercorn|sanic|litestar|ray/serve|"
    r"grpc/(?:_server|aio)|entrypoints|serving_\w{1,40}|api_server|http_server|tokenizer_manager)(?:/|\.py$)"
)
"""Files through which a server calls the handler of a request."""
_ENGINE = re.compile(
    r"/(?:engine/core|engine/multiprocessing|gpu_worker|worker_base|gpu_model_runner|model_runner|tp_worker|scheduler)\w*\.py$"
)
"""Files of what all requests share."""
_OF_CLIENT = re.compile(
    r"(?i)\babort(?:ed|ing)? request\b|\brequests? \S{1,120} (?:was )?aborted\b|\brequest .{0,80}\bclient disconnected|"
    r'" 4\d\d\b'
)
_LOGGED_BY_HANDLER = re.compile(
    r"(?:ERROR|WARNING|INFO) [\d-]{3,10} [\d:.,]{5,15} \[(?:serving_\w{1,40}|api_server|protocol)\.py:\d{1,6}\]"
    r"|ERROR: {1,8}Exception in ASGI application"
)


def may_hold(text: str) -> bool:
    """Whether a text may hold a line of a server's."""
    return any(word in text for word in WORDS)


@dataclass(slots=True)
class _Life:
    """A server between its start and its end: the lines of its newest answers."""

    begins: int
    answers: deque[int] = field(default_factory=lambda: deque(maxlen=MANY))
    ended: bool = False
    died: bool = False


class Requests:
    """The answers of the servers that print into one log."""

    def __init__(self) -> None:
        self._lives: dict[str, deque[_Life]] = {}

    def take(self, line: Line) -> None:
        """Take a line that may be of a server."""
        begins, stops, dies = (each.search(line.text) for each in (_BEGINS, _STOPS, _DIES))
        if not begins and not stops and not dies and not _ANSWERED.search(line.text):
            return
        if line.stream not in self._lives and len(self._lives) >= MAX_STREAMS:
            return
        lives = self._lives.setdefault(line.stream, deque([_Life(0)], maxlen=MAX_LIVES))
        if begins:
            lives.append(_Life(line.number))
        elif stops or dies:
            lives[-1].ended, lives[-1].died = True, lives[-1].died or dies is not None
        elif lives[-1].ended:
            lives.append(_Life(line.number))  # its start was not seen
        else:
            lives[-1].answers.append(line.number)

    def go_on(self, stream: str, since: int, *, ended: bool = False) -> bool:
        """Whether the server of a stream answered further requests below a line, and its engine did not die soon after it.

        ``ended``: its end was reported in words that are no server's own.
        """
        of_then = [life for life in self._lives.get(stream, ()) if life.begins <= since]
        if not of_then:
            return False
        after = sum(number > since for number in of_then[-1].answers)
        return after >= (MANY if ended or of_then[-1].died else 1)


def is_of_request(event: LogEvent) -> bool:
    """Whether an exception was raised below the handler of a request, and not in what all requests share."""
    files = [frame.file for frame in event.frames]
    return event.event == "traceback" and any(map(_HANDLER.search, files)) and not any(map(_ENGINE.search, files))


def without_requests(texts: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a server's log that are not of a request that failed while the server served on."""
    of_requests = lines_of_requests(texts)
    yield from (text for number, text in enumerate(texts, 1) if number not in of_requests)


def lines_of_requests(texts: Sequence[str]) -> set[int]:
    """Return the numbers of the lines that are of requests that failed, or whose client left, while the server served on."""
    requests, assembler = Requests(), Assembler()
    found: set[int] = set()
    failed_at: set[int] = set()
    lines = [peel(number, text) for number, text in enumerate(texts, 1)]
    for line in lines:
        requests.take(line)
    for line in lines:
        if HEADER in line.text or (assembler.busy and not _ANSWERED.search(line.text)):
            assembler.feed(line.number, line.text, None)
        else:
            assembler.close()
        failed = assembler.busy or _LOGGED_BY_HANDLER.search(line.text) is not None
        if failed and requests.go_on(line.stream, line.number):
            failed_at.add(line.number)
        elif _OF_CLIENT.search(line.text):
            found.add(line.number)
    near = {number + by for number in failed_at for by in range(-BESIDE_LINES, BESIDE_LINES + 1)}
    answered = {line.number for line in lines if line.number in near and _FAILED.search(line.text)}
    return found | failed_at | answered
