"""The shape of the house, held by tests: what loads what, how long a file may be, what an analyzer may touch."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.sources import REPOSITORY, functions, sources
from tests.support.used_names import importing, impure, unpickling

PACKAGES = ("faulthound", "collectors", "analyzers", "service", "simulation")
FILE_LINES_MAX = 400
COPIED_LINES_MAX = {  # each one file by its purpose: users copy it beside their script
    "collectors/faulthound_probe.py": 870,
    "collectors/faulthound_roles.py": 415,
}
FUNCTION_LINES_MAX = 60
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
HEAVY = ("pandas", "scipy", "sklearn", "torch")
OF_THE_SERVICE = ("fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "pydantic", "structlog", "httpx")

A_TEST = re.compile(r"^ *(?:async )?def test_", re.MULTILINE)
A_CLAIM = re.compile(
    r'^ *(?:async )?def test_\w+\((?:[^()]|\([^()]*\))*\)(?: -> [^:\n]+)?:\n +r?"""[^"\n]*\.(?:"""|\n)', re.MULTILINE
)

RESTRICTED_READER = "collectors/formats/flight_recorder/flight_recorder_pickle.py"
IMPORT_BY_NAME = {
    "analyzers/diagnosis/__init__.py",
    "analyzers/incidents/detectors/__init__.py",
    "collectors/agent/worker_child.py",  # a collector's process loads that collector alone
    "collectors/files/parsers/__main__.py",  # parses for the agent, with the one module that it is asked for
    "collectors/faulthound_probe.py",  # runs the script that it wraps
    "collectors/formats/__init__.py",
    "collectors/live/__init__.py",
    "collectors/live/sources/nvml_library.py",  # pynvml is optional
    "faulthound/__init__.py",
    "service/adapters/__init__.py",
    "service/api/resources/__init__.py",
    "service/cli/application.py",
    "service/pages/__init__.py",
}


def loaded_by(program: str, *arguments: str) -> set[str]:
    """Run a program in a fresh interpreter and return the top-level modules it had loaded at its end."""
    tail = "\nimport json, sys\nprint('\\n' + json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", program + tail, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_diagnosing_loads_nothing_heavy() -> None:
    """Diagnosing the recorded incident imports neither pandas, SciPy, scikit-learn, torch nor anything of the service."""
    program = (
        "import sys\nfrom service.cli import main\n"
        "sys.argv = ['faulthound', 'diagnose', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit as exit:\n    assert exit.code in (0, None), exit.code"
    )

    loaded = loaded_by(program, str(REPOSITORY / "examples" / "hung_job"), "--json")

    assert "numpy" in loaded  # the program really diagnosed
    assert not loaded & {*HEAVY, *OF_THE_SERVICE}


def test_reading_needs_no_numpy() -> None:
    """Importing every reader, as a node does that has only the base installation, loads no numpy and no terminal."""
    program = "import collectors.files.reading, collectors.formats\ncollectors.formats.registry()"

    loaded = loaded_by(program)

    assert "collectors" in loaded
    assert not loaded & {"numpy", "typer", "rich", "jinja2", "analyzers", "service", *HEAVY}


@pytest.mark.parametrize("package", PACKAGES)
def test_files_and_functions_stay_readable(package: str) -> None:
    """No file is longer than 400 lines and no function longer than 60: past that it is a design question."""
    too_long = []
    for path in sources(package):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(REPOSITORY)
        if (lines := text.count("\n")) > COPIED_LINES_MAX.get(str(name), FILE_LINES_MAX):
            too_long.append(f"{name}: {lines} lines")
        too_long += [
            f"{name}:{node.lineno} {node.name}: {length} lines"
            for node in functions(path)
            if (length := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
        ]

    assert too_long == []


def test_names_say_what_is_inside() -> None:
    """No module is called utils, helpers, common, manager or base."""
    found = [path for path in sources(*PACKAGES, "tests") if {path.stem, path.parent.name} & EMPTY_NAMES]

    assert found == []


def all_claim(text: str) -> bool:
    """Return whether each test of a file has its sentence where a pattern sees it; parsing all files takes seconds."""
    return len(A_CLAIM.findall(text)) == len(A_TEST.findall(text))


def test_every_test_states_its_claim() -> None:
    """Every test's docstring begins with a sentence that the test can prove wrong."""
    silent = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.name}"
        for path in sources("tests")
        if not all_claim(path.read_text(encoding="utf-8"))
        for node in functions(path)
        if node.name.startswith("test_") and not (ast.get_docstring(node) or "").partition("\n")[0].endswith(".")
    ]

    assert silent == []


def found_in(check: Callable[[str], list[str]], *folders: str) -> dict[str, list[str]]:
    """Return what a check finds in the files below these folders, by file."""
    found = {str(path.relative_to(REPOSITORY)): check(path.read_text(encoding="utf-8")) for path in sources(*folders)}
    return {name: lines for name, lines in found.items() if lines}


def test_analyzers_are_pure() -> None:
    """No analyzer opens, prints, asks for the time or draws lots; what it may not import is held by an import contract."""
    assert found_in(impure, "analyzers") == {}


@pytest.mark.parametrize(
    "snippet",
    [
        "open('x')",
        "read = open\nread('x')",
        "print(1)",
        "from datetime import datetime\ndatetime.now()",
        "import numpy as np\nnp.fromfile('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy\nread = numpy.load\nread('x')",
        "import numpy as np\ngetattr(np, 'load')('x')",
        "from numpy import memmap as mapped",
        "from numpy import *",
        "import numpy as np\nnp.random.rand(3)",
        "from numpy.random import default_rng",
        "import numpy.random",
        "import numpy as np\nnp.zeros(3).tofile('x')",
    ],
)
def test_an_impure_analyzer_is_found(snippet: str) -> None:
    """An analyzer that reads a file, prints, asks for the time or draws lots is found, under any alias."""
    assert impure(snippet) != []


def test_nothing_unpickles_but_the_restricted_reader() -> None:
    """Outside the restricted reader nothing unpickles: a dump is a stranger's file and may carry code."""
    assert set(found_in(unpickling, *PACKAGES)) == {RESTRICTED_READER}


@pytest.mark.parametrize(
    "snippet",
    [
        "import pickle\npickle.loads(b'')",
        "import pickle as p\np.load(file)",
        "import pickle\nread = pickle\nread.loads(b'')",
        "from pickle import loads\nloads(b'')",
        "from pickle import load as read",
        "from pickle import *",
        "import pickle\npickle.Unpickler(file).load()",
        "from pickle import Unpickler",
        "import marshal\nmarshal.loads(b'')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import dill",
        "eval('1')",
    ],
)
def test_unpickling_is_found(snippet: str) -> None:
    """Every way to load a pickle is found, under any alias."""
    assert unpickling(snippet) != []


def test_writing_a_pickle_and_reading_json_are_no_unpickling() -> None:
    """A pickle may be written, and `loads` of JSON and TOML is none of pickle."""
    assert unpickling("import json, pickle\nfrom tomllib import loads\npickle.dumps(json.loads(loads(x)))") == []


def test_only_registries_import_by_name() -> None:
    """Only the registries, the entry points and four loaders import by a computed name, which no import contract sees."""
    assert set(found_in(importing, *PACKAGES)) == IMPORT_BY_NAME


@pytest.mark.parametrize(
    "snippet",
    [
        "import importlib\nimportlib.import_module('sqlalchemy')",
        "from importlib import import_module",
        "import importlib as i\nload = i.import_module\nload('sqlalchemy')",
        "__import__('sqlalchemy')",
        "import importlib.util",
        "import pkgutil\npkgutil.resolve_name('sqlalchemy:select')",
        "import runpy",
    ],
)
def test_an_import_by_name_is_found(snippet: str) -> None:
    """Every way to import by a computed name is found, under any alias."""
    assert importing(snippet) != []


@pytest.mark.system
def test_a_wheel_carries_knowledge_and_templates(tmp_path: Path) -> None:
    """What `pip install` puts on a machine holds every knowledge table, page template and migration, and no test."""
    tree, wheels = tmp_path / "tree", tmp_path / "wheels"
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES, "migrations", "pyproject.toml", "README.md", "LICENSE"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in tracked:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((REPOSITORY / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels)]

    subprocess.run([*pip, "."], cwd=tree, check=True)

    (wheel,) = wheels.glob("faulthound-*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    data = {name for name in tracked if name.startswith(PACKAGES) and not name.endswith(".py")}
    assert any(name.endswith(".toml") for name in data)
    assert data <= inside
    migrations = {name for name in tracked if name.startswith("migrations/")}
    assert any(name.startswith("migrations/versions/") for name in migrations)
    assert migrations <= {name.partition("/data/share/faulthound/")[2] for name in inside}
    assert not [name for name in inside if name.startswith(("tests/", "examples/"))]
