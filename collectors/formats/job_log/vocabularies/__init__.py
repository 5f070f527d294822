"""The closed, public vocabularies of errors: what every program calls them, whatever its log looks like.

A row of a table is ``NUMBER NAME OTHER_NAME …: text``, where the number may be left out, and "…" ends a text that is cut. A name
is an identifier and is looked for as it is; a text in any case, where it stands apart from what surrounds it; a number behind
the words of its list, in a line that names nothing. What is found is called by the row's first name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from collectors.formats.job_log.vocabularies import (
    answers,
    communication,
    cuda,
    errnos,
    files,
    libraries,
    outside,
    refusals,
    runtimes,
    services,
)

MAX_CHARACTERS = 4096
_WORD = re.compile(r"[A-Za-z_]\w{0,80}")
_NAMED_AS_CUDA = re.compile(r"(?:hip|musa|mc|tops)(Error[A-Z]\w*)")
_OF_XLA = re.compile(r"HIP_ERROR_([A-Z][a-z]\w*)")
_NUMBER = re.compile(r"\d+")
_OF_LIBFABRIC = re.compile(r"FI_(E[A-Z]+)")
_BEFORE = re.compile(
    r"(?:^\s{0,24}|[:=()\[\]>,;](?:\s?\d{1,4}\b)?| -|\b(?:[Ee]rror|[Ee]rrno|failed|failure|status|result|code|with|is|got|"
    r"returned|CUDA|HIP|NPU|XPU|HPU|MUSA|MLU|TPU)(?: \d{1,4})?)"
    r"\s{0,3}[\"'`(]?(?:an? |the )?$"
)
_BEHIND = re.compile(r"(?:[\"'`]| /|[.\s]*(?:$|[)\]:;,(|]|- ))")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """One closed list. ``near``: what its texts stand beside; its names too, where ``are_words``: each is a common word."""

    rows: str
    near: re.Pattern[str] | None = None
    are_words: re.Pattern[str] | None = None
    by_number: re.Pattern[str] | None = None  # where its numbers stand in a line, as the one group


@dataclass(frozen=True, slots=True)
class Found:
    """An error at its place in a line, by its first name."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Entry:
    phrase: str  # a name as it is, a text in lower case
    is_name: bool
    is_cut: bool
    name: str
    vocabulary: Vocabulary


def _near(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?i){words}")


VOCABULARIES = (
    Vocabulary(
        cuda.CUDA,
        _near(
            r"cu(?:da|blas|dnn|fft|ctx|stream|event|mem|launch|init)|hip|[gnxht]pu|accelerator|nvrtc|musa|"
            r"resource_exhausted|tried to allocate"
        ),
        by_number=re.compile(
            r"\b(?:CUDA|[Cc]uda|HIP|cu[A-Z]\w{2,40}|cuda[A-Z]\w{2,40}|hip[A-Z]\w{2,40})\b.{0,80}?"
            r"\b(?:[Ee]rror(?: ?[Cc]ode)?|ERROR)\b[ :=#(]{1,4}(\d{1,3})\b(?=[)\]]?(?:$|[:;,]| at | \(|\.(?:\s|$)))"
        ),
    ),
    Vocabulary(libraries.MATHEMATICS),
    Vocabulary(libraries.OF_ROCM),
    Vocabulary(libraries.COMPILERS),
    Vocabulary(libraries.MANAGEMENT, _near(r"nvml|nvidia")),
    Vocabulary(communication.NCCL, _near(r"[nr]ccl")),
    Vocabulary(communication.VERBS, _near(r"ibv?_|\bib\b|verbs|rdma|rocm?e|mlx\d|completion|\bwc\b|\bcq\b|\bqp\b|efa")),
    Vocabulary(communication.UCX, _near(r"uc[xpts]\b|uc[pts]_")),
    Vocabulary(communication.UCC),
    Vocabulary(communication.PMIX),
    Vocabulary(communication.LIBFABRIC, _near(r"libfabric|\bofi\b|\bfi_|efa|provider")),
    Vocabulary(communication.MPI, _near(r"mpi")),
    Vocabulary(runtimes.VULKAN),
    Vocabulary(runtimes.HSA),
    Vocabulary(runtimes.LEVEL_ZERO),
    Vocabulary(runtimes.SYNAPSE, by_number=re.compile(r"\b(?:synStatus ?= ?|synapse error: )(\d{1,2})\b")),
    Vocabulary(
        runtimes.NEURON,
        by_number=re.compile(r"\bnrt_\w{3,40}\b.{0,80}?\bstatus(?:_code)?\s?[=:]\s?(\d{1,4})\b"),
    ),
    Vocabulary(runtimes.ASCEND, _near(r"npu|acl|ascend|hccl|runtime_")),
    Vocabulary(
        communication.REMOTE_CALLS,
        are_words=re.compile(
            r"(?:StatusCode\.|(?i:\bcode|\bstatus(?:_?code)?|rpc error|grpc_status|Error|error)(?:\"|'|\b)\s?[=:]{1,2}\s?[\"']?)$"
        ),
    ),
    Vocabulary(services.RESOLVER),
    Vocabulary(
        services.OBJECT_STORES,
        are_words=re.compile(
            r"(?:<Code>|[Ee]rror ?[Cc]ode[\"': =]{1,4}|Code: |An error occurred \(|S3Error: |S3 error: ?|AWS Error )$"
        ),
    ),
    Vocabulary(services.ENDPOINTS),
    Vocabulary(answers.HTTP, by_number=answers.HTTP_AT),
    Vocabulary(answers.CURL, by_number=answers.CURL_AT),
    Vocabulary(files.DAMAGED),
    Vocabulary(refusals.REFUSED),
    Vocabulary(errnos.ERRNOS),
)


@cache
def _index() -> dict[str, tuple[_Entry, ...]]:
    """Return the entries by their first words, in lower case."""
    found: dict[str, list[_Entry]] = {}
    for vocabulary in VOCABULARIES:
        for row in vocabulary.rows.strip().splitlines():
            names, _, text = row.partition(": ")
            first, *others = names.lstrip("0123456789 ").split()
            for name in (first, *others):
                found.setdefault(name.lower(), []).append(_Entry(name, True, False, first, vocabulary))
            if word := _WORD.search(text):
                phrase = text[word.start() :].lower()
                entry = _Entry(phrase.rstrip("…"), False, phrase.endswith("…"), first, vocabulary)
                found.setdefault(word[0].lower(), []).append(entry)
    return {word: tuple(sorted(entries, key=lambda each: -len(each.phrase))) for word, entries in found.items()}


@cache
def _numbered() -> tuple[tuple[re.Pattern[str], dict[str, str]], ...]:
    """Return where numbers of a list stand, and the first names by number."""
    lists = ((each.by_number, each.rows) for each in VOCABULARIES if each.by_number is not None)
    return tuple(
        (pattern, dict(row.partition(": ")[0].split()[:2] for row in rows.strip().splitlines() if row[:1].isdigit()))
        for pattern, rows in lists
    )


def is_explained(found: Found, text: str) -> bool:
    """Whether an error's own text follows its name, as ``[CUDA_ERROR_NOT_PERMITTED] operation not permitted in …``."""
    after = text[found.end : found.end + 200].lower().lstrip(" ]):'\"-")
    first = _WORD.match(after)
    entries = _index().get(first[0], ()) if first else ()
    return any(entry.name == found.name and not entry.is_name and after.startswith(entry.phrase) for entry in entries)


def names() -> frozenset[str]:
    """Return what the rows are called by."""
    of_outside = (outside.NOT_REACHED, outside.NO_ANSWER, outside.NO_ANSWER_OF_STORE)
    return frozenset((*of_outside, *(entry.name for entries in _index().values() for entry in entries)))


def holds_any(text: str) -> bool:
    """Whether a line holds a name or a text of any list, wherever it stands; its numbers do not matter."""
    blanked = _NUMBER.sub("0", text)
    index, lowered = _index(), blanked.lower()
    for word in _WORD.finditer(blanked):
        for entry in index.get(_plain(word[0]).lower(), ()):
            if entry.is_name or lowered.startswith(_NUMBER.sub("0", entry.phrase), word.start()):
                return True
    return outside.may_name(text) or any(pattern.search(text) for pattern, _ in _numbered())


def find(text: str) -> Iterator[Found]:
    """Yield the errors that a line names, each at its place."""
    text = text[:MAX_CHARACTERS]
    if unreached := outside.unreached(text):
        yield Found(outside.NOT_REACHED, *unreached)  # what a connection to it failed with says less
        return
    index, lowered, end = _index(), text.lower(), 0
    for word in _WORD.finditer(text):
        if word.start() < end:
            continue
        for entry in index.get(_plain(word[0]).lower(), ()):
            if (reached := _reached(entry, word, text, lowered)) is not None:
                end = reached
                yield Found(entry.name, word.start(), end)
                break
    if end == 0:
        yield from _by_number(text)


def _by_number(text: str) -> Iterator[Found]:
    for pattern, known in _numbered():
        if (number := pattern.search(text)) and (name := known.get(number[1])):
            yield Found(name, number.start(1), number.end(1))


def _plain(word: str) -> str:
    """Return an identifier as its list has it: HIP's as CUDA's, libfabric's as that of the C library."""
    if "rror" not in word and word[:4] not in {"HIP_", "FI_E"}:
        return word
    if named := _OF_XLA.fullmatch(word):
        word = "hipError" + named[1]
    if named := _NAMED_AS_CUDA.fullmatch(word):
        return word if word.lower() in _index() else "cuda" + named[1]
    if (named := _OF_LIBFABRIC.fullmatch(word)) and word.lower() not in _index():
        return named[1]
    return word


def _reached(entry: _Entry, word: re.Match[str], text: str, lowered: str) -> int | None:
    """Return where an entry ends that begins with a word of the line; None where the line does not name it."""
    of = entry.vocabulary
    if entry.is_name:
        if entry.phrase != _plain(word[0]) or (of.are_words and not of.are_words.search(text[: word.start()])):
            return None
        return word.end()
    end = word.start() + len(entry.phrase)
    if not lowered.startswith(entry.phrase, word.start()) or (of.near and not of.near.search(text)):
        return None
    ends = entry.is_cut or _BEHIND.match(text, end)
    return end if ends and is_apart(text, word.start()) else None


def is_apart(text: str, start: int) -> bool:
    """Whether what begins at a place of a line stands apart: behind a sign, or a word for a result."""
    return _BEFORE.search(text[max(0, start - 40) : start]) is not None
