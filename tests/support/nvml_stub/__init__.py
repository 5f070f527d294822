"""A libnvidia-ml.so.1 without a GPU: built from ``nvml_stub.c``, driven by a scenario file that it reads at every call."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCE = Path(__file__).with_name("nvml_stub.c")

# Runs the collector once for every line on its input and answers with what it yielded, a JSON array a line.
PROGRAM = """
import json, sys
import msgspec
from pathlib import Path
from collectors.live import Cursor, NothingToCollect, Readings, registry
from collectors.live.sources.host import Host, Roots

given = json.loads(sys.argv[1])
host = Host("gpu-0001", Roots(proc=Path(given["proc"])), options=given["options"], cursors=given["cursors"])
run = registry()["gpu"].make(host)
assert "pynvml" not in sys.modules, "the driver's library must not enter the agent's own process"
for _ in sys.stdin:
    said = []
    try:
        for one in run(None):
            kind = type(one).__name__
            content = {"value": one.value} if isinstance(one, Cursor) else msgspec.to_builtins(one)
            said.append({**content, "kind": kind})
    except NothingToCollect as nothing:
        said.append({"kind": "NothingToCollect", "why": str(nothing)})
    except RuntimeError as error:
        said.append({"kind": "RuntimeError", "why": str(error)})
    print(json.dumps(said), flush=True)
"""


def build(folder: Path, *options: str) -> Path:
    """Compile the stub into a folder for LD_LIBRARY_PATH; skip with the reason where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: the stub of libnvidia-ml cannot be built")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-Wall", "-Wextra", "-Werror", *options, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1",
         "-o", str(library), str(SOURCE)],
        check=True,
    )  # fmt: skip
    return library


@dataclass
class Worker:
    """The collector in a process of its own, with the real bindings on the stub; one ``run`` at a time."""

    scenario: Path
    library: Path | None
    proc: Path
    options: dict[str, Any] = field(default_factory=dict)
    cursors: dict[str, Any] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Worker:
        """Start the process; nothing is loaded before the first run."""
        given = {"proc": str(self.proc), "options": {"gpu": self.options}, "cursors": self.cursors}
        environment = {**os.environ, "NVML_STUB_SCENARIO": str(self.scenario), "PYTHONPATH": str(REPOSITORY)}
        environment.pop("LD_LIBRARY_PATH", None)
        if self.library is not None:
            environment["LD_LIBRARY_PATH"] = str(self.library.parent)
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(given)], cwd=REPOSITORY, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, whatever it is in."""
        assert self._process
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()

    def says(self, *lines: str) -> None:
        """Write the scenario anew, whole, so that no call reads half of it."""
        fresh = self.scenario.with_suffix(".fresh")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self.scenario)

    def begin(self) -> IO[str]:
        """Ask for a run; return where its answer will stand."""
        assert self._process
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return self._process.stdout

    def run(self) -> list[dict[str, Any]]:
        """Run the collector once and return what it yielded."""
        answer = self.begin().readline()
        assert answer, "the collector's process ended"
        said: list[dict[str, Any]] = json.loads(answer)
        return said


def of(said: Iterable[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return what is of one kind: a record's class, Readings, Cursor."""
    return [one for one in said if one["kind"] == kind]


def column(said: Sequence[dict[str, Any]], metric: str, scope: str = "gpu") -> dict[str, float | None]:
    """Return one metric of every device."""
    for table in of(said, "Readings"):
        if table["scope"] == scope and metric in table["metrics"]:
            place = table["metrics"].index(metric)
            return {device: row[place] for device, row in zip(table["devices"], table["values"], strict=True)}
    return {}
