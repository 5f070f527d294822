"""The command line on a terminal: interruptions, closed pipes, colour, progress, width."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.files import reading
from collectors.records import Record
from collectors.records.bundle import Manifest
from service.cli import export as exporting
from service.cli import run, speech
from service.cli.application import command
from tests.support.faulthound_process import REPOSITORY


def test_interruption_is_quiet(
    judged: dict[str, object], folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while files are read ends with 130 and says nothing."""

    def interrupted(*_: object, **__: object) -> Iterator[Record]:
        raise KeyboardInterrupt

    monkeypatch.setattr(reading, "read_paths", interrupted)

    assert run(["diagnose", folder]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_closed_pipe_is_quiet() -> None:
    """When the reader of a pipe goes away there is no traceback."""
    many = (
        "from collectors.files import reading\nfrom collectors.records import KernelEvent\n"
        "reading.read_paths = lambda files: (KernelEvent(event='xid', text='x' * 500) for _ in range(100_000))"
    )
    command = [sys.executable, "-c", f"{many}\nfrom service.cli import main\nmain()", "read", "--json", "."]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        said = process.stderr.read()

    assert said == b""
    assert process.returncode == 141


def test_colour_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours need a terminal and neither --no-color, NO_COLOR nor a dumb one."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert speech.colored()
    assert not speech.colored(no_color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not speech.colored()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not speech.colored()


def test_progress_shows_only_to_people_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no bar in a pipe or when quiet; at a terminal none within the first second, and one after."""
    with speech.Speech().progress("reading") as report:
        assert report is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with speech.Speech(quiet=True).progress("reading") as report:
        assert report is None
    opened: list[str] = []

    def opening(bar: speech._Bar) -> speech.Progress:
        opened.append(bar.what)
        return lambda done, total: None

    monkeypatch.setattr(speech._Bar, "_opened", opening)
    with speech.Speech().progress("reading") as report:
        assert report is not None
        report(1, 9)
        assert opened == []
        monkeypatch.setattr(speech, "PATIENCE_SECONDS", 0.0)
        report(2, 9)
        report(3, 9)
    assert opened == ["reading"]


def test_the_bar_draws_on_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The real bar leaves stdout alone and can be closed."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(speech, "PATIENCE_SECONDS", 0.0)
    with speech.Speech().progress("reading") as report:
        assert report is not None
        report(1, 2)
        report(2, 2)

    shown = capsys.readouterr()
    assert shown.out == ""
    assert "reading" in shown.err


@pytest.mark.parametrize("verb", ["diagnose", "read"])
def test_an_empty_path_is_not_the_current_folder(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable in a script is refused, and nothing is read or blamed in its place."""
    assert run([verb, ""]) == 2
    assert "empty" in capsys.readouterr().err


def test_help_keeps_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """No paragraph of the help is wider than the terminal."""
    command().main(["--help"], prog_name="faulthound", standalone_mode=False, terminal_width=80)
    said = capsys.readouterr().out

    assert "Exit codes" in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize(("nodes", "says"), [(("a",), "of 1 node;"), (("a", "b"), "of 2 nodes;")])
def test_an_export_counts_its_nodes(
    nodes: tuple[str, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One node is singular."""
    file = tmp_path / "bundle.fhz"
    file.write_bytes(b"of a fake service")
    monkeypatch.setattr(exporting, "download", lambda *_args, **_options: Manifest(job="llama", nodes=nodes))

    exporting._export(None, "llama", file, force=True).show()  # type: ignore[arg-type]

    assert says in capsys.readouterr().err
