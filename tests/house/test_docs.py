"""The documentation is held to the code: what is registered is described, what is printed is real."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.test_language import found as banned
from tests.support.sources import sources

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path for path in (*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")) if path.parent.name != "decisions"
)
# Where claims about speed and accuracy stand; the other pages state rules, whose numbers are in the code.
CLAIMING_PAGES = [page for page in PAGES if page.parent in (REPOSITORY, REPOSITORY / "docs" / "measured")]
FIRST_SCREEN_LINES = 25
ARCHITECTURE_LINES = 60
ROOMED = ("collectors", "analyzers", "service")  # packages whose folders are rooms; elsewhere the top folder is one
INSTALLING = """\
Installing faulthound into .venv (once; a minute or two) …
.venv/bin/faulthound diagnose examples/hung_job --html out/report.html
"""
REPORTED = "report: out/report.html\n"
A_MEASUREMENT = re.compile(r"\b\d[\d.,]*\s?(ms|s|seconds|MB|GB|%|×)(?![\w/]| p99)")
A_SOURCE = re.compile(r"measured/|make bench|make acceptance|python -m tests\.")


def text(name: str) -> str:
    """Return a page."""
    return (REPOSITORY / name).read_text(encoding="utf-8")


def rows(page: str) -> set[str]:
    """Return the first cells of the tables of a page, without their backticks."""
    return {cell.strip("`") for cell in re.findall(r"^\| *(`[^`|]+`) *\|", text(page), re.MULTILINE)}


def printed_by(command: str) -> str:
    """Return what a documented command prints, on a plain terminal of 100 columns."""
    if command == "make run":
        return INSTALLING + printed_by("faulthound diagnose examples/hung_job") + REPORTED
    program, *arguments = command.split()
    assert program == "faulthound", f"only faulthound and `make run` are rerun, not {command!r}"
    done = subprocess.run(
        [sys.executable, "-c", "from service.cli import main; main()", *arguments],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "100", "NO_COLOR": "1", "LANG": "C.UTF-8"},
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: exit {done.returncode}: {done.stderr}"
    # A dump's time is its file's, and a checkout gives all files its own: how far apart they are says nothing here.
    return re.sub(r"^ *The dumps were taken within .*\n", "", done.stdout, flags=re.MULTILINE)


def with_real_output(page: str) -> str:
    """Return a page's text with the output of every `$ …` line in its console blocks as it is printed today."""

    def rerun(block: re.Match[str]) -> str:
        commands = re.findall(r"^\$ (.*)$", block[1], re.MULTILINE)
        outputs = (re.sub(r"[ \t]+$", "", printed_by(command), flags=re.MULTILINE).strip("\n") for command in commands)
        shown = "\n\n".join(f"$ {command}\n{output}" for command, output in zip(commands, outputs, strict=True))
        return f"```console\n{shown}\n```"

    return re.sub(r"^```console\n(.*?)^```", rerun, page, flags=re.MULTILINE | re.DOTALL)


def test_every_reader_has_a_row() -> None:
    """docs/formats.md describes exactly the formats that are registered."""
    from collectors import formats

    assert rows("docs/formats.md") == {format.name for format in formats.registry()}


def test_every_analyzer_has_a_row() -> None:
    """docs/analyzers.md describes exactly the analyzers that the engine runs, and every knowledge table."""
    from analyzers import diagnosis

    knowledge = {f"knowledge/{path.name}" for path in (REPOSITORY / "analyzers" / "knowledge").glob("*.toml")}

    assert knowledge
    assert rows("docs/analyzers.md") == set(diagnosis.registry()) | knowledge


def test_every_detector_has_a_row() -> None:
    """docs/engine.md says what each detector sees that opens an incident."""
    from analyzers.incidents.detectors import every_detector

    assert rows("docs/engine.md") >= set(every_detector())


def test_every_adapter_is_described() -> None:
    """docs/adapters.md or docs/slurm.md shows how each adapter is started."""
    from service import adapters

    described = text("docs/adapters.md") + text("docs/slurm.md")

    assert [name for name in adapters.names() if f"faulthound adapter {name} " not in described] == []


def test_every_browser_page_has_a_row() -> None:
    """docs/pages.md has a row for each address that a browser can open."""
    import service.pages

    modules = [
        importlib.import_module(f"service.pages.{found.name}") for found in pkgutil.iter_modules(service.pages.__path__)
    ]
    routes = [route for module in modules if hasattr(module, "router") for route in module.router.routes]
    addresses = {route.path for route in routes if "GET" in getattr(route, "methods", ())}

    assert rows("docs/pages.md") == addresses - {"/sign-in"}


def test_knowledge_says_where_it_is_from() -> None:
    """Every knowledge table names its source and the date at which that source was read."""
    for path in (REPOSITORY / "analyzers" / "knowledge").glob("*.toml"):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        said = next((part for part in (table.get("source"), table.get("meta")) if isinstance(part, dict)), table)

        assert said.get("source") or said.get("title"), f"{path.name} names no source"
        assert said.get("date") or said.get("read"), f"{path.name} does not say of which day it is"


@pytest.mark.system
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_shown_output_is_real(page: Path, rewrite: bool) -> None:
    """Every console block shows what its commands print today; `pytest --rewrite` brings a page up to date."""
    shown = page.read_text(encoding="utf-8")

    real = with_real_output(shown)

    if rewrite:
        page.write_text(real, encoding="utf-8")
    else:
        assert shown == real


def test_the_first_screen_is_one_command() -> None:
    """README's first block is `make run`, and it begins on the first screen."""
    before, found, _ = text("README.md").partition("```console\n$ make run\n")

    assert found
    assert "```" not in before
    assert before.count("\n") < FIRST_SCREEN_LINES


def test_every_command_is_described() -> None:
    """docs/cli.md shows the help of every verb, docs/README.md lists every verb, README every exit code."""
    from service.cli.application import command

    index, reference = text("docs/README.md"), text("docs/cli.md")

    for verb in command().commands:
        assert f"$ faulthound {verb} --help" in reference
        assert f"`faulthound {verb}" in index
    assert {"0", "1", "2", "3", "4", "5"} <= set(re.findall(r"^\| *`(\d)` *\|", text("README.md"), re.MULTILINE))


def test_every_variable_is_described() -> None:
    """Each FAULTHOUND_… that the product names, in a job's, an agent's or the service's environment, stands in a page of docs."""
    named = {
        name
        for path in sources("collectors", "analyzers", "service", "simulation", "faulthound")
        for name in re.findall(r"\bFAULTHOUND_[A-Z][A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8"))
    }
    pages = "".join(page.read_text(encoding="utf-8") for page in (REPOSITORY / "docs").glob("*.md"))

    assert len(named) > 10
    assert sorted(name for name in named if not re.search(rf"\b{name}\b", pages)) == []


def test_shown_commands_exist() -> None:
    """Each `faulthound …` that a page shows, in a block or in backticks, is a verb with these options in docs/cli.md."""
    helps = dict(
        re.findall(r"^## faulthound ?([^\n]*)\n(.*?)(?=^## |\Z)", text("docs/cli.md"), re.MULTILINE | re.DOTALL)
    )
    everywhere = set(re.findall(r"--[a-z-]+", helps[""]))
    wrong = []
    for page in PAGES:
        shown = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for command in re.findall(r"(?:^|bin/|`|\$ )faulthound ([a-z][^\n`|#]*)", shown, re.MULTILINE):
            words = command.split()
            verb = next((verb for n in (2, 1) if (verb := " ".join(words[:n])) in helps), None)
            options = {word.split("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]+(=.*)?", word)}
            if verb is None or not options <= everywhere | set(re.findall(r"--[a-z-]+", helps[verb])):
                wrong.append(f"{page.relative_to(REPOSITORY)}: faulthound {command}")

    assert wrong == []


def anchors(page: Path) -> set[str]:
    """Return what a link to a heading of the page may end in, as GitHub makes it of the heading."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    """Every relative link of every page names a file that exists, and a heading that it has."""
    broken = []
    for page in (*PAGES, *(REPOSITORY / "docs" / "decisions").glob("*.md")):
        links = re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", page.read_text(encoding="utf-8"))
        for path, anchor in links:
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(f"{page.relative_to(REPOSITORY)}: {path}#{anchor}")

    assert broken == []


def test_named_files_exist() -> None:
    """A path of the repository that a page, a decision included, names in backticks is there."""
    tops = "|".join(path.name for path in REPOSITORY.iterdir() if path.is_dir() and not path.name.startswith("."))
    named = re.compile(rf"`((?:{tops})/[\w./-]*)`")
    pages = [*PAGES, *(REPOSITORY / "docs" / "decisions").glob("*.md")]
    missing = [
        f"{page.relative_to(REPOSITORY)}: {path}"
        for page in pages
        for path in named.findall(page.read_text(encoding="utf-8"))
        if "NAME" not in path and not (REPOSITORY / path).exists()
    ]

    assert missing == []


def test_every_page_can_be_found() -> None:
    """Every page of docs is linked from README or from docs/README.md, and that one from README."""
    linked = re.findall(r"\]\(docs/([\w-]+\.md)[)#]", text("README.md"))
    linked += re.findall(r"\]\(([\w-]+\.md)[)#]", text("docs/README.md"))

    assert "](docs/README.md)" in text("README.md")
    assert {page.name for page in (REPOSITORY / "docs").glob("*.md")} - {"README.md"} == set(linked) - {"README.md"}


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_begins_with_its_purpose_and_an_example(page: Path) -> None:
    """The first screen of a page has a heading, a sentence that says what it is for, and an example."""
    lines = page.read_text(encoding="utf-8").splitlines()[:FIRST_SCREEN_LINES]

    assert lines[0].startswith("# ")
    assert lines[1] == ""
    assert re.match(r"[\w`\[]", lines[2]), "a paragraph stands below the heading"
    assert re.search(r"\.(\s|$)", "\n".join(lines[2:]).partition("\n\n")[0]), "with a whole sentence"
    assert any(line.startswith("```") for line in lines), "and an example stands on the first screen"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_pages_use_plain_words(page: Path) -> None:
    """Outside of what commands print and of the glossary no page holds a phrase that test_language bans."""
    prose = re.sub(r"^```.*?^```|^## Words.*", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)

    assert banned(prose) == []


def test_architecture_shows_every_room() -> None:
    """ARCHITECTURE.md is one short page with one picture, and its table has exactly the folders of the tree."""
    page = text("ARCHITECTURE.md")
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    folders = {tuple(path.split("/")[:2]) for path in tracked if "/" in path}
    rooms = {f"{top}/{room}" for top, room in folders if top in ROOMED and "." not in room}
    rooms |= {top for top, _ in folders if top not in ROOMED and not top.startswith(".")}
    table = re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE)

    assert page.count("\n") <= ARCHITECTURE_LINES
    assert page.count("```") == 2
    assert sorted(re.findall(r"`([^`]+)`", " ".join(table))) == sorted(rooms)


def test_architecture_shows_where_the_recipes_plug_in() -> None:
    """Each recipe of CONTRIBUTING.md has its mark in the picture and in the table of ARCHITECTURE.md."""
    _, picture, below = text("ARCHITECTURE.md").split("```")
    recipes = re.findall(r"^### (\S) ", text("CONTRIBUTING.md"), re.MULTILINE)

    assert recipes == sorted(set(recipes))
    assert [mark for mark in recipes if mark not in picture or mark not in below] == []


def test_the_changelog_speaks_of_this_version() -> None:
    """CHANGELOG has a section for the version in pyproject.toml, or one for what is unreleased."""
    version = re.search(r'^version = "(.+)"', text("pyproject.toml"), re.MULTILINE)

    assert version
    assert re.search(rf"^## \[?(Unreleased|{re.escape(version[1])})", text("CHANGELOG.md"), re.MULTILINE)


@pytest.mark.parametrize("page", CLAIMING_PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_no_number_without_a_command(page: Path) -> None:
    """A section that states a measured quantity names the command or the document that it comes from."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    sections = re.split(r"^(?=#+ )", prose, flags=re.MULTILINE)
    bare = [
        f"{section.splitlines()[0]}: {found.group(0)}"
        for section in sections
        if (found := A_MEASUREMENT.search(section)) and not A_SOURCE.search(section)
    ]

    assert bare == []


def test_measurements_say_how_they_were_made() -> None:
    """Every document in docs/measured has its command, commit and machine, and a row in the index."""
    documents = sorted((REPOSITORY / "docs" / "measured").glob("*.json"))
    for path in documents:
        content = json.loads(path.read_text(encoding="utf-8"))
        assert all(content.get(key) for key in ("command", "commit", "machine")), path.name

    assert rows("docs/measured/README.md") >= {path.name for path in documents}
