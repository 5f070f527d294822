"""A server that fails one request and serves on did not go down; what ends it does."""

from __future__ import annotations

import io

import pytest

from collectors.formats import Input
from collectors.formats.job_log import job_log
from collectors.formats.job_log.requests import without_requests
from collectors.formats.prose.sound_logs import is_sound
from collectors.records import LogEvent

BEGIN = "INFO:     Started server process [31]\nINFO:     Application startup complete.\n"
OK = 'INFO:     10.1.0.9:40112 - "POST /v1/completions HTTP/1.1" 200 OK\n'
REFUSED = OK.replace("200 OK", "400 Bad Request")
FAILED = OK.replace("200 OK", "500 Internal Server Error")
HEALTH = OK.replace("POST /v1/completions", "GET /metrics")
WORK = (
    "INFO 02-03 04:05:09 [loggers.py:118] Engine 000: Avg prompt throughput: 31.0 tokens/s, Avg generation throughput: 7.0 "
    "tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n"
)
IDLE = WORK.replace("31.0", "0.0").replace("7.0", "0.0")
STOP = "INFO:     Shutting down\nINFO:     Finished server process [31]\n"


def raised(file: str, says: str = "ValueError: the request asks for too many tokens", before: str = "") -> str:
    """A traceback of one frame, each line with what a logger puts before it."""
    lines = ("Traceback (most recent call last):", f'  File "{file}", line 44, in handle', "    raise error", says)
    return "".join(f"{before}{line}\n" for line in lines)


HANDLER = raised("/opt/vllm/entrypoints/openai/serving_chat.py", before="ERROR 02-03 04:05:06 [serving_chat.py:200] ")
ASGI = "ERROR:    Exception in ASGI application\n" + raised("/venv/lib/python3.12/site-packages/starlette/routing.py")
OWN = raised("/srv/train.py")
ENGINE = raised("/opt/vllm/v1/engine/core.py", before="ERROR 02-03 04:05:06 [core.py:700] ")
BOTH = (
    "Traceback (most recent call last):\n"
    '  File "/venv/lib/python3.12/site-packages/starlette/routing.py", line 7, in app\n    await call()\n'
    '  File "/opt/vllm/v1/worker/gpu_model_runner.py", line 9, in execute_model\n    run()\nRuntimeError: no block is free\n'
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (HANDLER + REFUSED + OK, 0),
        (HANDLER + REFUSED, 0),
        (HANDLER + WORK, 0),
        (ASGI + FAILED + OK, 0),
        (ASGI + OK * 4 + STOP, 0),  # it was stopped later, for another reason
        (ASGI + FAILED, 1),
        (ASGI + FAILED + HEALTH + IDLE, 1),  # a dead engine's server still gives its metrics
        (FAILED + ASGI + OK, 0),  # uvicorn's own order
        (HANDLER + OK + STOP, 0),  # asked to stop after it had served on
        (HANDLER + STOP, 1),
        (HANDLER + OK + "vllm.v1.engine.exceptions.EngineDeadError: see above\n" + STOP, 1),
        (HANDLER + OK * 2 + "Segmentation fault (core dumped)\n", 0),  # a signal has another reason
        (HANDLER + STOP + BEGIN + OK * 5, 1),  # it serves because it was started again
        (HANDLER + BEGIN + OK * 5, 1),
        (OWN + OK * 5, 1),  # a trainer that prints into the same log
        (ENGINE + OK * 5, 1),
        (BOTH + OK * 5, 1),
        ("".join(f"(Trainer pid=7) {line}\n" for line in HANDLER.splitlines()) + OK * 5, 1),  # of another process
        (HANDLER + OK * 5 + "/srv/run.sh: line 3:    31 Killed                  vllm serve m\n", 0),
    ],
)
def test_an_exception_after_which_its_server_answers_is_of_one_request(text: str, count: int) -> None:
    """Answers of the same process come below it, and neither its end nor its start stands between."""
    data = (BEGIN + OK + text).encode()
    records = list(job_log.read(Input("server.log", io.BytesIO(data), data)))

    assert sum(isinstance(record, LogEvent) and record.event == "traceback" for record in records) == count


def test_the_message_of_an_exception_ends_at_the_servers_next_line() -> None:
    """An access line is no part of it."""
    data = (BEGIN + ASGI + FAILED).encode()
    (found,) = (
        each for each in job_log.read(Input("server.log", io.BytesIO(data), data)) if isinstance(each, LogEvent)
    )

    assert found.message == "the request asks for too many tokens"


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        (BEGIN + HANDLER + REFUSED + OK, True),
        (BEGIN + ASGI + FAILED + OK, True),
        (BEGIN + FAILED + ASGI + OK, True),
        (BEGIN + FAILED + ASGI + FAILED, False),
        (BEGIN + OK + FAILED + OK, False),  # an answer of 500 that nothing explains
        (BEGIN + FAILED + ASGI + OK + STOP, True),
        (BEGIN + OK + "[2027-01-02 03:04:05] Abort request since client disconnected rid=9f\n" + OK, True),
        (BEGIN + HANDLER + STOP, False),
        (BEGIN + OK + "ERROR 02-03 04:05:06 [core.py:700] EngineCore failed\n" + OK, False),
    ],
)
def test_the_log_of_a_server_is_sound_beside_requests_that_failed(text: str, sound: bool) -> None:
    """A request that was refused, or whose client left, is everyday."""
    assert is_sound(text) is sound


def test_what_stands_between_two_answers_is_kept() -> None:
    """Only the lines of the request are left out."""
    kept = list(without_requests((BEGIN + HANDLER + REFUSED + OK + "a line\n" + OK).splitlines()))

    assert kept == [*BEGIN.splitlines(), OK.rstrip(), "a line", OK.rstrip()]


def test_a_server_s_line_ends_a_traceback_that_was_cut() -> None:
    """The level that uvicorn writes is the name of no exception."""
    cut = "".join(line + "\n" for line in ENGINE.splitlines()[:3])
    data = (BEGIN + cut + FAILED).encode()
    found = [each for each in job_log.read(Input("s.log", io.BytesIO(data), data)) if isinstance(each, LogEvent)]

    assert [each.exception for each in found] in ([], [None])
