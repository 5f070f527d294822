"""The full names that a source text uses, under whatever alias, and which of them break a rule of the house."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

IO_CALLS = {"open()", "print()", "input()", "breakpoint()"}
IO_METHODS = (".now()", ".utcnow()", ".today()", ".tofile()", ".dump()")
IO_NAMES = (
    "builtins", "codecs.open", "ctypes", "datetime.*", "fileinput", "mmap", "scipy.datasets", "scipy.io", "sys.stderr",
    "sys.stdin", "sys.stdout",
    *(f"numpy.{name}" for name in (
        "*", "DataSource", "ctypeslib", "f2py", "fromfile", "fromregex", "genfromtxt", "lib", "load", "loadtxt", "memmap",
        "random", "save", "savetxt", "savez", "savez_compressed",
    )),
)  # fmt: skip
WRITES_PICKLE = {"pickle", "pickle.dump", "pickle.dumps"}
RUNS_CONTENT = (
    "pickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal.*", "marshal.load", "marshal.loads", "numpy.load",
    "builtins.eval", "builtins.exec",
)  # fmt: skip
IMPORTS_BY_NAME = (
    "__import__", "builtins.__import__", "imp", "importlib.*", "importlib.__import__", "importlib.import_module",
    "importlib.util", "importlib.machinery.SourceFileLoader", "pkgutil.resolve_name", "runpy",
)  # fmt: skip


def impure(source: str) -> list[str]:
    """Return where a text reads or writes a file, prints, asks for the time or draws a random number."""
    return [
        f"{line}: {name}"
        for line, name in used(source)
        if name in IO_CALLS or name.endswith(IO_METHODS) or _among(name, IO_NAMES)
    ]


def unpickling(source: str) -> list[str]:
    """Return where a text can run the content of a file: a pickle, marshalled code, a string given to eval."""
    if not _may_use(source, ("eval", "exec", *RUNS_CONTENT)):
        return []
    return [
        f"{line}: {name}"
        for line, name in used(source)
        if name in {"eval()", "exec()"} or (_among(name, RUNS_CONTENT) and name.removesuffix("()") not in WRITES_PICKLE)
    ]


def importing(source: str) -> list[str]:
    """Return where a text imports by a computed name, which no import contract sees."""
    if not _may_use(source, IMPORTS_BY_NAME):
        return []
    return [f"{line}: {name}" for line, name in used(source) if _among(name, IMPORTS_BY_NAME)]


def _may_use(source: str, names: tuple[str, ...]) -> bool:
    """Return whether all parts of one of these names stand in a text: an alias hides none, and parsing is slow."""
    words = set(re.findall(r"\w+|\*", source))
    return any(words.issuperset(name.split(".")) for name in names)


@cache
def used(source: str) -> tuple[tuple[int, str], ...]:
    """Return the line and full name of each import, name and attribute; a call ends in ``()``.

    With ``import numpy as np``, ``np.load`` is numpy.load. A method of a computed value begins with a dot.
    """
    return tuple(_used(list(ast.walk(ast.parse(source)))))


def _used(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    aliases: dict[str, str] = {}
    for node in nodes:
        for name, full in _imported(node):
            aliases[name] = full
            yield getattr(node, "lineno", 0), full
    roots = {full.partition(".")[0] for full in aliases.values()} | {"open", "eval", "exec", "__import__"}
    for node in nodes:  # loads = pickle.loads
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            full = _full(node.value, aliases)
            if full.partition(".")[0] in roots:
                aliases[node.targets[0].id] = full
    for node in nodes:
        if isinstance(node, ast.Call) and (full := _full(node.func, aliases)):
            yield node.lineno, f"{full}()"
        if isinstance(node, ast.Name | ast.Attribute | ast.Call) and (full := _full(node, aliases)):
            yield node.lineno, full


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, each with what it stands for."""
    match node:
        case ast.Import(names=names):
            for name in names:
                yield name.asname or name.name, name.name
        case ast.ImportFrom(module=str(module), names=names, level=0):
            for name in names:
                yield name.asname or name.name, f"{module}.{name.name}"


def _full(node: ast.AST, aliases: dict[str, str]) -> str:
    match node:
        case ast.Name(id=name):
            return aliases.get(name, name)
        case ast.Attribute(value=value, attr=name):
            return f"{_full(value, aliases)}.{name}"
        case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *_]):
            return f"{_full(value, aliases)}.{name}"
    return ""


def _among(name: str, names: tuple[str, ...]) -> bool:
    """Return whether a name is one of these or lies below one."""
    bare = name.removesuffix("()")
    return any(bare == one or bare.startswith(f"{one}.") for one in names)
