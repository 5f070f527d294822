"""The front door: starts the command line, the agent and their child processes, all with our own packages.

A training job may have a ``service/`` or ``collectors/`` of its own in the current folder or on PYTHONPATH. Python would
import that one. A finder put first serves our names from the folder that holds this package, and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

PACKAGES = frozenset({"analyzers", "collectors", "faulthound", "service", "simulation"})
_HERE = Path(__file__).resolve()
_ROOT = str(_HERE.parents[1])


class _OurPackages:
    """A meta path finder for our top-level names; their submodules are found by the packages' own paths."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_ROOT], target) if name in PACKAGES else None


def child_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of our modules as a process of its own, in any folder and with any PYTHONPATH."""
    return [sys.executable, "-P", str(_HERE), module, *arguments]


def child_environment() -> dict[str, str]:
    """Return the environment of such a process: without our settings, among which the token is."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FAULTHOUND_")}


def import_msgspec() -> None:
    """Import it without typing_extensions, which it needs on older Pythons alone: 2 MB in each of the agent's processes."""
    hidden = "typing_extensions" not in sys.modules
    if hidden:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    import_module("msgspec")
    if hidden:
        del sys.modules["typing_extensions"]


def main() -> None:
    """Run ``faulthound`` and leave the process with its exit code."""
    import_module("service.cli").main()


def agent() -> None:
    """Run ``faulthound-agent`` and leave the process with its exit code."""
    import_msgspec()
    import_module("collectors.agent").main()


sys.meta_path.insert(0, _OurPackages)

if __name__ == "__main__":  # as child_command() starts it
    from runpy import run_module

    del sys.argv[0]
    if sys.argv[0].startswith("collectors."):  # the agent's
        import_msgspec()
    run_module(sys.argv[0], run_name="__main__", alter_sys=True)
