"""Every command that an output, an error, a page or a document hints at can be typed: the parser takes it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer

from collectors.agent.cli import _parser
from service.cli.application import command
from tests.support.sources import REPOSITORY, sources

PACKAGES = ("collectors", "analyzers", "service")
LACKS_AN_ARGUMENT = re.compile(r"MissingParameter \['[a-z]")
STANDS_FOR = "STANDS-FOR-A-VALUE"
COMMAND = re.compile(r"(?:^|bin/|[\s`'\"(;&])(faulthound(?:-agent)?) ([a-z][^`\n<]*)")
TYPED = re.compile(r"(?:\$ |[A-Z_]+=\S* |\S*/)*faulthound(?:-agent)? [a-z]")
A_VALUE = re.compile(rf"{STANDS_FOR}|^[A-Z][A-Z:,_-]*\d?$|…|^DIR|^FILE")
PAGES = sorted(
    path
    for path in (*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), REPOSITORY / "examples/README.md")
    if path.parent.name != "decisions"
)
USAGE: Any = typer.BadParameter.__bases__[0]
Found = tuple[str, str]  # where, command


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings of a file that may be shown, a value in one replaced by a word; no docstring but a verb's."""
    source = path.read_text(encoding="utf-8")
    if not re.search(r"faulthound(-agent)? [a-z]", source):
        return
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                skipped.add(id(first.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in node.values)
            parts = (part.value if isinstance(part, ast.Constant) else STANDS_FOR for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def in_backticks(where: str, text: str) -> Iterator[Found]:
    """Yield the commands that a text has in backticks."""
    for quoted in re.findall(r"(?<!`)`([^`]+)`(?!`)", text):
        yield from ((where, f"{program} {rest}") for program, rest in COMMAND.findall(quoted))


def of_sources() -> Iterator[Found]:
    """Yield the commands in the texts of the product."""
    for path in sources(*PACKAGES):
        for line, text in texts(path):
            where = f"{path.relative_to(REPOSITORY)}:{line}"
            yield from in_backticks(where, text)
            if re.match(r"faulthound(-agent)? [a-z]+ ", text):  # a step of a report, or a command that is shown alone
                yield from ((where, f"{program} {rest}") for program, rest in COMMAND.findall(text))


def of_helps() -> Iterator[Found]:
    """Yield the examples of the verbs' helps."""
    for name, verb in command().commands.items():
        for one in (verb, *getattr(verb, "commands", {}).values()):
            for line in (one.help or "").splitlines():
                if re.match(r"\s+([A-Z_]+=\S+ )*faulthound ", line):
                    yield from ((f"help of {name}", f"{program} {rest}") for program, rest in COMMAND.findall(line))


def of_templates() -> Iterator[Found]:
    """Yield the commands of the pages and the reports."""
    for path in sorted((REPOSITORY / "service").rglob("*.html")):
        text = re.sub(r"\{\{[^}]*\}\}|\{%[^%]*%\}", STANDS_FOR, path.read_text(encoding="utf-8")).replace("&amp;", "&")
        for code in re.findall(r"<code>(.*?)</code>", text):
            yield from ((path.name, f"{program} {rest}") for program, rest in COMMAND.findall(code))


def of_pages() -> Iterator[Found]:
    """Yield the commands of the documents: in blocks, and in the text those that have an argument or an option."""
    for path in PAGES:
        shown = path.read_text(encoding="utf-8").replace("\\\n", " ")
        if path.name == "cli.md":
            continue  # it is made of the helps
        where = str(path.relative_to(REPOSITORY))
        for block in re.findall(r"^```[a-z]*\n(.*?)^```", shown, re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                plain = re.split(r"  +|\s#\s", line.strip())[0]
                if TYPED.match(plain):
                    yield from ((where, f"{program} {rest}") for program, rest in COMMAND.findall(plain))
        prose = re.sub(r"^```.*?^```", "", shown, flags=re.MULTILINE | re.DOTALL)
        # A verb alone names the verb, where what it lacks is an argument; what lacks an option does not show that.
        yield from (one for one in in_backticks(where, prose) if not LACKS_AN_ARGUMENT.search(wrong(one[1])))


def typed(shown: str) -> list[str]:
    """Return the words of the first command of a line, as a shell splits them."""
    split = shlex.shlex(re.sub(r"(?<=\S)[.,:)]+$", "", shown.strip()), posix=True, punctuation_chars=";|&><()")
    split.whitespace_split = True
    return list(takewhile(lambda word: not set(word) <= set(";|&><()"), split))


def wrong(shown: str) -> str:
    """Return why the parser refuses a command; empty: it takes it. What stands for a value is a value of any kind."""
    words = typed(shown)
    if "--help" in words:
        return ""
    if words[0] == "faulthound-agent":
        try:
            _parser().parse_args(words[1:])
        except SystemExit as end:
            return "the agent's parser refuses it" if end.code else ""
        return ""
    verb: Any = command()
    context = verb.make_context("faulthound", words[1:], resilient_parsing=True)
    rest = words[1:]
    while hasattr(verb, "commands"):
        if not rest or rest[0].startswith("-") or rest[0] not in verb.commands:
            return f"{' '.join(words)}: no such verb" if rest and not A_VALUE.search(rest[0]) else ""
        verb, rest = verb.commands[rest[0]], rest[1:]
    if not rest and not any(one.required for one in verb.params):
        return ""
    try:
        verb.make_context(verb.name, list(rest), parent=context)
    except typer.BadParameter as problem:
        value = str(problem.message)
        stands = re.findall(r"'([^']*)'", value)
        if type(problem).__name__ == "MissingParameter":
            return f"{' '.join(words)}: {type(problem).__name__} {problem.param and problem.param.opts}"
        if "does not exist" in value or any(A_VALUE.search(one) for one in stands):
            return ""
        return f"{' '.join(words)}: {value}"
    except USAGE as problem:
        return f"{' '.join(words)}: {problem.message}"
    return ""


@pytest.mark.parametrize(
    "found", [of_sources, of_helps, of_templates, of_pages], ids=lambda one: one.__name__.removeprefix("of_")
)
def test_what_is_hinted_at_can_be_typed(found: Any) -> None:
    """No command that is shown ends with 2 for want of an option or an argument."""
    shown = list(found())
    refused = [f"{where}: {why}" for where, text in shown if (why := wrong(text))]

    assert len(shown) > 2
    assert refused == []


def test_a_hint_without_its_reason_is_refused() -> None:
    """The check sees an option that is missing, a verb that does not exist, and an option that does not."""
    assert wrong("faulthound freeze off")
    assert wrong("faulthound breaker shut")
    assert wrong("faulthound jobs list --all")
    assert wrong("faulthound-agent probe")
    assert not wrong("faulthound freeze off --reason TEXT")
