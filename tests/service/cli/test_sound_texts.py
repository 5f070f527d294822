"""Texts that tell of no fault: a server that serves, a table of GPUs that answer, the report of a test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cli.diagnose import NothingUsed, judged
from service.cli.hosts import Hosts
from service.cli.speech import Speech
from service.packaged_knowledge import load
from service.reports.next_steps import next_steps
from service.reports.story import headlines

VLLM = """\
INFO 08-14 10:00:01 [config.py:700] This model supports multiple tasks: {'generate', 'embed'}. Defaulting to 'generate'.
WARNING 08-14 10:00:02 [utils.py:2400] Methods determine_num_available_blocks,initialize_cache not implemented in <Worker object>
INFO 08-14 10:00:03 [parallel_state.py:950] rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, TP rank 0
Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:02<00:00,  1.60it/s]
INFO 08-14 10:00:41 [core.py:160] init engine (profile, create kv cache, warmup model) took 30.12 seconds
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     127.0.0.1:50122 - "POST /v1/completions HTTP/1.1" 200 OK
INFO 08-14 10:01:01 [loggers.py:80] Engine 000: Avg prompt throughput: 12.4 tokens/s, Avg generation throughput: 90.1 tokens/s, \
Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%
"""
SGLANG = """\
[2026-08-14 10:00:01] server_args=ServerArgs(model_path='m', watchdog_timeout=300, disable_radix_cache=False)
[2026-08-14 10:00:04 TP0] Attention backend not set. Use flashinfer backend by default.
[2026-08-14 10:00:09 TP0] Memory pool end. avail mem=9.01 GB
[2026-08-14 10:00:20] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)
[2026-08-14 10:00:21] The server is fired up and ready to roll!
[2026-08-14 10:00:31 TP0] Decode batch. #running-req: 1, #token: 133, gen throughput (token/s): 92.11, #queue-req: 0
"""
TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
| N/A   97C    P0            691W /  700W |   78012MiB /  81559MiB |    100%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
"""
TESTS = """\
E   RuntimeError: CUDA error: an illegal memory access was encountered
FAILED tests/test_gather.py::test_of_two - RuntimeError: CUDA error: an illegal memory access was encountered
1 failed, 9 passed in 4.20s
"""
PASSED = """\
=========================== test session starts ===========================
tests/test_memory.py::test_too_much_is_refused PASSED
---------------------------- Captured log call ----------------------------
ERROR    trainer:loop.py:41 CUDA out of memory. Tried to allocate 6.00 GiB
==================== 2 passed, 1 xfailed, 3 warnings in 9.80s ====================
"""
REFUSED = """\
ERROR 08-14 10:01:02 [serving_chat.py:212] Traceback (most recent call last):
ERROR 08-14 10:01:02 [serving_chat.py:212]   File "/vllm/entrypoints/openai/serving_chat.py", line 201, in create
ERROR 08-14 10:01:02 [serving_chat.py:212]     raise ValueError(said)
ERROR 08-14 10:01:02 [serving_chat.py:212] ValueError: the prompt of 9000 tokens is longer than this model takes
INFO:     127.0.0.1:50123 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request
INFO:     127.0.0.1:50124 - "POST /v1/chat/completions HTTP/1.1" 200 OK
"""
RAISED = """\
INFO:     127.0.0.1:50125 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error
ERROR:    Exception in ASGI application
Traceback (most recent call last):
  File "/venv/lib/uvicorn/protocols/http/h11_impl.py", line 403, in run_asgi
    result = await app(
  File "/vllm/entrypoints/openai/serving_completion.py", line 77, in create
    return form(None)
AttributeError: 'NoneType' object has no attribute 'strip'
"""
STOPPED = "INFO:     Shutting down\nINFO:     Application shutdown complete.\nINFO:     Finished server process [77]\n"
LEFT = "[2026-08-14 10:00:32] Abort request since client disconnected rid=5c1\n"
ENGINE_DIED = "ERROR 08-14 10:02:00 [core.py:410] EngineCore encountered a fatal problem and stops\n"


def said_of(text: str, folder: Path) -> str:
    """Return why nothing was judged; "" where something was."""
    path = folder / "paste.txt"
    path.write_text(text, encoding="utf-8")
    try:
        judged([path], load(), Hosts.given(None, None), Speech(quiet=True), workers=1)
    except NothingUsed as nothing:
        return str(nothing)
    return ""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (VLLM, "the log of a server that serves"),
        (SGLANG, "the log of a server that serves"),
        (VLLM + REFUSED, "the log of a server that serves"),
        (VLLM + RAISED + VLLM.splitlines()[-2] + "\n", "the log of a server that serves"),
        (
            VLLM + RAISED + VLLM.splitlines()[-2] + "\n" + STOPPED,
            "the log of a server that served until it was stopped",
        ),
        (SGLANG + LEFT + SGLANG.splitlines()[-1], "the log of a server that serves"),
        (TABLE, "a table of GPUs that answer"),
        (TESTS, "the report of a test run"),
        (PASSED, "the report of a test run"),
    ],
    ids=[
        "vllm",
        "sglang",
        "a request refused",
        "a request failed",
        "stopped",
        "a client left",
        "nvidia-smi",
        "tests",
        "passed",
    ],
)
def test_what_tells_of_no_fault_is_called_what_it_is(text: str, what: str, tmp_path: Path) -> None:
    """No cause is given by its words, nothing is called unreadable, and nobody is asked for the whole log."""
    said = said_of(text, tmp_path)

    assert f"shows a fault: it is {what}" in said
    assert "add" not in said


def test_a_server_that_stops_is_not_sound(tmp_path: Path) -> None:
    """The control: one line of a failure below the same log, and it is no sound one."""
    assert "server that serves" not in said_of(VLLM + ENGINE_DIED, tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "ERROR 08-14 10:02:01 [async_llm.py:410] vllm.v1.engine.exceptions.EngineDeadError: EngineCore met an issue.",
        "ERROR 08-14 10:02:01 [async_llm.py:408] AsyncLLM output_handler failed.",
        "ERROR 08-14 10:02:01 [engine.py:165] AsyncEngineDeadError('the loop is stopped')",
    ],
)
def test_that_an_engine_has_died_is_said_and_no_cause_is_guessed(line: str, tmp_path: Path) -> None:
    """Its front only reports it: no cause by the words of the text, and no stacks of processes that are gone."""
    path = tmp_path / "paste.txt"
    path.write_text(VLLM + line + "\n", encoding="utf-8")
    verdict, _, _ = judged([path], load(), Hosts.given(None, None), Speech(quiet=True), workers=1)

    assert (verdict.symptom, verdict.cause, verdict.culprits) == ("crash", "unknown", ())
    assert [root.fault_class for root in verdict.roots] == ["engine_died"]
    assert "engine has died" in str(headlines(verdict)[0])
    assert not any("py-spy" in command for _, command in next_steps(verdict))


def test_what_ended_the_engine_is_named_where_a_line_says_it(tmp_path: Path) -> None:
    """The control: with its own exception above, the report of the front is an echo."""
    path = tmp_path / "paste.txt"
    own = "".join(
        f"ERROR 08-14 10:02:00 [core.py:700] {text}\n"
        for text in (
            "Traceback (most recent call last):",
            '  File "/vllm/v1/engine/core.py", line 691, in run_engine_core',
            "    step()",
            "KeyError: 'layer.7'",
        )
    )
    dead = (
        "ERROR 08-14 10:02:01 [async_llm.py:410] vllm.v1.engine.exceptions.EngineDeadError: EngineCore met an issue.\n"
    )
    path.write_text(VLLM + own + dead, encoding="utf-8")
    verdict, _, _ = judged([path], load(), Hosts.given(None, None), Speech(quiet=True), workers=1)

    assert (verdict.cause, [root.fault_class for root in verdict.roots]) == ("code", ["program_error"])


def test_a_gpu_that_does_not_answer_is_not_well(tmp_path: Path) -> None:
    """The control: the table with a GPU that reads ERR! is judged."""
    assert "GPUs that answer" not in said_of(
        TABLE.replace("97C    P0            691W", "ERR! ERR!          ERR!"), tmp_path
    )
