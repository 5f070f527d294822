"""Whatever a name, a log line or a file holds, no output of ours steers a terminal or turns the direction of writing."""

from __future__ import annotations

import io
import json
import logging
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import structlog

from analyzers.knowledge import Knowledge
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records.printable import printable, printable_json
from service.adapters import alertmanager, cloudevents, webhook
from service.adapters.slurm import slurm_output
from service.cli import output, watch
from service.client import StreamEvent
from service.logs import write_logs
from service.pages import rendering
from service.reports import html, text
from service.settings import Settings
from tests.support.sample_verdicts import hang

HARMFUL = "".join(
    character
    for character in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Cs") and character not in "\t\n"
)
SEEN = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt.exe\u2066\u200bgpu\r0001\x00\u2028\ufeff\U000e0041\x7f"
ESCAPES = ("\\x1b", "\\u202e", "\\x9b", "\\x00", "\\U000e0041")


def harmless(shown: str) -> bool:
    """Whether nothing in an output is harmful."""
    return not set(shown) & set(HARMFUL)


def poisoned(value: Any) -> Any:
    """Return plain data in which every text that is shown as it is has the characters in it."""
    if isinstance(value, dict):
        return {
            key: poisoned(one) if key in FREE else one if isinstance(one, str) else poisoned(one)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [poisoned(one) for one in value]
    return value + SEEN if isinstance(value, str) else value


FREE = frozenset({"why", "text", "source", "job", "what", "id", "role", "chains", "program"})
VERDICT = msgspec.convert(poisoned(msgspec.to_builtins(hang())), type(hang()))
EVENT = StreamEvent(
    sequence=7, at=1_000.0, kind="symptom", incident="inc-1", job=f"job{SEEN}", details={"text": SEEN, "detector": SEEN}
)
JOB_EVENT = msgspec.structs.replace(EVENT, incident=None)
REMEDIATION = {
    "id": "r1",
    "why": SEEN,
    "nodes": ["gpu-1"],
    "job": SEEN,
    "symptoms": [{"text": SEEN}],
    "incident": "inc-1",
}


def printed(write: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> str:
    """What a function writes on stdout."""
    write()
    return capsys.readouterr().out


def test_every_harmful_character_is_an_escape() -> None:
    """All controls, format characters and separators of Unicode but tabs and line ends; other text stays as it is."""
    for character in HARMFUL:
        assert printable(character) != character
        assert harmless(printable(character))
    innocent = "gpu-0001 → 7 µs, 東京, é, 🙂\tx\n"
    assert printable(innocent) == innocent
    assert printable("a\x1bb\u202ec") == "a\\x1bb\\u202ec"
    assert printable("\x1b[1m\x07", keep="\x1b") == "\x1b[1m\\x07"


def test_json_keeps_its_values() -> None:
    """The escapes are JSON's own: what a program reads is what was sent."""
    data = {"a": SEEN, "b": ["é", "\u202e\U000e0001"]}
    shown = printable_json(msgspec.json.encode(data))

    assert harmless(shown)
    assert json.loads(shown) == data


@pytest.mark.parametrize("unicode", [True, False])
def test_the_text_report_is_harmless(unicode: bool) -> None:
    """A verdict whose every text is full of them."""
    shown = text.render(VERDICT, unicode=unicode)

    assert harmless(shown)
    assert "\\x1b" in shown
    assert "\\u202e" in shown


def test_the_html_report_and_the_pages_are_harmless() -> None:
    """The report of a verdict, and a page with a notice."""
    page = html.page(VERDICT, Window(), Topology(), Knowledge())
    refused = rendering._environment().from_string("<p>{{ notice }}</p><a href='{{ notice }}'>").render(notice=SEEN)

    for shown in (page, refused):
        assert harmless(shown)
        assert all(escape in shown for escape in ESCAPES[:2])


def test_the_command_line_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    """Tables, lines, verdicts, JSON and the stream."""
    outputs = {
        "table": lambda: output.print_table(("job",), [(SEEN,)]),
        "lines": lambda: output.print_lines([SEEN]),
        "verdict": lambda: output.print_verdict(VERDICT),
        "json": lambda: output.print_json({"job": SEEN}),
        "watch": lambda: print(watch.line_of(EVENT)),
    }
    for name, write in outputs.items():
        shown = printed(write, capsys)
        assert harmless(shown), name
        assert "202e" in shown, name


def test_what_other_programs_show_is_harmless() -> None:
    """An alert, a CloudEvent, a webhook's message, and the reason of a drain, whose ids stay as they are."""
    event = cloudevents.cloud_event(EVENT, "https://f.example", {"text": SEEN})
    assert harmless(event["subject"] + cloudevents.cloud_event(JOB_EVENT, "https://f.example")["subject"])
    for document in (event, webhook.message(EVENT, REMEDIATION)):
        body = printable_json(msgspec.json.encode(document))
        assert harmless(body)
        assert json.loads(body) == document, "what a program reads is as it was"
    assert harmless(slurm_output.reason("inc-1", "rem-1", SEEN))
    assert harmless("".join(alertmanager._filled({"job": SEEN, "why": SEEN}).values()))


def test_a_log_line_is_one_line_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path and an error of a sender, in the log of the service and in that of a library."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    write_logs(Settings())
    try:
        structlog.get_logger().info("request", path=f"/v1/{SEEN}", error="a\nforged line")
        logging.getLogger("other").warning("failed: %s", f"{SEEN}\nforged")
    finally:
        structlog.reset_defaults()
        logging.basicConfig(force=True)

    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert all(map(harmless, lines))
    assert all("\\u202e" in line for line in lines)


def test_a_traceback_in_the_log_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an exception says may be a sender's words, in the log of the service and in that of a library."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    write_logs(Settings())
    try:
        raise ValueError(SEEN)
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("other").exception("failed")
    finally:
        structlog.reset_defaults()
        logging.basicConfig(force=True)

    shown = stream.getvalue()
    assert shown.count("Traceback") == 2
    assert shown.count("\\u202e") >= 2
    assert harmless(shown)
