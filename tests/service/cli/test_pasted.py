"""Standard input as a path of ``faulthound diagnose``."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from service.cli.diagnose import STANDARD_INPUT, saved, shown
from service.cli.speech import Speech


def test_standard_input_is_a_file_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for ``-`` holds the bytes that were piped, beside the other paths, and is gone afterwards."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Killed\n")))

    with saved([Path("a.log"), STANDARD_INPUT], Speech(quiet=True)) as files:
        kept = files[1]

        assert files[0] == Path("a.log")
        assert kept.read_bytes() == b"Killed\n"

    assert not kept.exists()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/tmp/faulthound-ab12/standard input:7", "standard input:7"),
        ("no line of /tmp/faulthound-ab12/standard input", "no line of standard input"),
        ("logs/rank7.log:3", "logs/rank7.log:3"),
    ],
)
def test_its_folder_is_not_shown(source: str, expected: str) -> None:
    """A report names standard input, and no place of ours."""
    assert shown(source) == expected
