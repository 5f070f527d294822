"""The rooms: what each may import from outside, how files are named, and that the tests mirror them.

Directions and cycles between rooms are import contracts in pyproject.toml. test_docs.py holds the list of rooms: it is the table
of ARCHITECTURE.md.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.sources import REPOSITORY, imports_in, sources

PACKAGES = ("faulthound", "collectors", "analyzers", "service", "simulation")
LOOSE_FILES_MAX = 5
LOOSE_ALLOWED = {"simulation": 11}  # the simulator is one room


MAY_IMPORT = {
    "alembic": "migrations service/store",
    "backports": "collectors/files collectors/records",  # zstd before Python 3.14
    "compression": "collectors/files collectors/records",  # zstd from Python 3.14 on
    "ClusterShell": "collectors/formats service/adapters",
    "fastapi": "service/api service/pages",
    "httpx": "service/adapters service/client.py",
    "httpx_sse": "service/client.py",
    "jinja2": "service/pages service/reports",
    "markupsafe": "service/reports",
    "msgspec": "analyzers collectors service simulation",
    "networkx": "",  # an oracle in the tests
    "numpy": "analyzers service/api service/evaluation service/reports service/store simulation",
    "prometheus_client": "collectors/formats service/api",
    "pydantic": "service/api service/cli service/pages service/settings.py",
    "pydantic_settings": "service/settings.py",
    "pyarrow": "collectors/formats",  # the extra `tables`
    "pynvml": "collectors/live",
    "ray": "service/adapters",  # in a program that Ray's own Python runs
    "rich": "service/cli",
    "sklearn": "service/evaluation",  # the extra `tables`
    "sqlalchemy": "migrations service/api service/cli service/engine service/pages service/remediation service/roles "
    "service/store",
    "stamina": "service/client.py",
    "standardwebhooks": "service/adapters",
    "starlette": "service/api",
    "structlog": "service/api service/logs.py",
    "typer": "service/adapters service/cli",
    "uvicorn": "service/api",
    "uvloop": "service/api",
}
"""Library → the rooms, or loose files, that may import it. A new library gets a row here, and its reason in docs/decisions."""


OURS = {*PACKAGES, *sys.stdlib_module_names, "faulthound_probe", "faulthound_roles"} - {"compression"}


def relative(*folders: str) -> Iterator[Path]:
    """Yield the Python files below these folders, relative to the repository."""
    return (path.relative_to(REPOSITORY) for path in sources(*folders))


def room(path: Path) -> str:
    """Return the second-level folder of a file, or the file itself where it lies loose."""
    return "/".join(path.parts[:2])


def libraries(path: Path) -> set[str]:
    """Return what a file imports that is neither ours nor the standard library's, late imports included."""
    named = imports_in((REPOSITORY / path).read_text(encoding="utf-8"))
    return {name.partition(".")[0] for name in named} - OURS


def test_each_library_stays_in_its_rooms() -> None:
    """A third-party library is imported only by the rooms that the table gives it to."""
    outside = [
        f"{path} imports {library}"
        for path in relative(*PACKAGES, "migrations")
        for library in sorted(libraries(path))
        if not any(f"{path}/".startswith(f"{place}/") for place in MAY_IMPORT.get(library, "").split())
    ]

    assert outside == []


def test_no_file_name_twice_within_a_room() -> None:
    """Within a room, and within a room's tests, a file's name says which one it is."""
    paths = defaultdict(list)
    for path in relative(*PACKAGES):
        paths[room(path), path.name].append(str(path))
    for path in relative("tests"):
        paths["/".join(path.parts[: 2 if path.parts[1] == "support" else 3]), path.name].append(str(path))

    twice = {key: found for key, found in paths.items() if len(found) > 1 and key[1] != "__init__.py"}

    assert twice == {}


def test_few_files_lie_loose() -> None:
    """At a package's root lie at most six files; what belongs together has a room."""
    for package in PACKAGES:
        loose = [
            path.name for path in (REPOSITORY / package).glob("*.py") if path.name not in {"__init__.py", "__main__.py"}
        ]

        assert len(loose) <= LOOSE_ALLOWED.get(package, LOOSE_FILES_MAX), f"{package}: {sorted(loose)}"


def test_the_tests_mirror_the_rooms() -> None:
    """Each folder of tests below a package's name is one of that package's rooms."""
    strange = [
        str(folder.relative_to(REPOSITORY))
        for package in PACKAGES
        for folder in sorted((REPOSITORY / "tests" / package).glob("*/"))
        if folder.name != "__pycache__" and not (REPOSITORY / package / folder.name).is_dir()
    ]

    assert strange == []


def test_what_others_import_is_collected_without_torch() -> None:
    """A module that is skipped as a whole where torch is missing, as for `make check`, has nothing that another test imports."""
    texts = {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in sources("tests")
    }
    skipped = {name for name, text in texts.items() if re.search(r"^needs_torch\(", text, re.MULTILINE)}
    imported = {name for text in texts.values() for name in imports_in(text)}

    assert skipped
    assert sorted(skipped & imported) == []
