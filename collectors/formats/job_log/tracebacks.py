"""A Python traceback becomes one value, even where many ranks' lines are interleaved: one assembler a stream.

Python prints the oldest exception of a chain first, then a sentence, then the next one. The first is the root, and what
came after it is kept by name only. A message may have many lines (NCCL's and CUDA's do); it ends at a blank line, at a
line with a logger's stamp, or at its bound.
"""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass, field

from collectors.records import Frame

MAX_FRAMES = 64  # of a traceback, the innermost: recursion prints a thousand
MAX_MESSAGE_CHARACTERS = 2000
MAX_MESSAGE_LINES = 24
MAX_BLOCK_LINES = 4000
MAX_CHAIN = 8
MAX_GAP_LINES = 3  # blank lines between the blocks of a chain

HEADER = "Traceback (most recent call last)"
BEGINNINGS = (HEADER, '", line ', "ray.exceptions.", "torch.distributed.Dist", "torch.OutOfMemoryError", "torch.AcceleratorError",
              "XlaRuntimeError: ")  # fmt: skip
"""A line with none of these begins no traceback, with its header or without."""
_FRAME = re.compile(r'\s*File "([^"]{1,500})", line (\d{1,9})(?:, in (.{1,200}))?')
_CUT_FRAME = re.compile(r'\s{1,12}File "[^"]{1,500}", line \d{1,9}, in ')
_QUALIFIED = re.compile(
    r"(?:ray\.exceptions|torch(?:\.distributed)?|jaxlib[\w.]{0,40})\.(?:\w{1,60}(?:Error|Exception))(?:\(\w{1,60}\))?(?:: |$)"
)
"""An exception by its full name: the last line of a traceback even where nothing of it was pasted before."""
_OTHER_NAMES = r"(?:Read|Connect)?Timeout|TimeoutExpired|ServiceUnavailable|BrokenProcessPool|Again|NVMLError_\w{1,40}"
_LEAD = (  # a reporter's or a program's few words; none that name a change, advice or a question
    r"(?!(?i:fix|feat|docs?|chore|tests?|note|todo|tip|hint|question|faq|q|a|re|see|warn|warning|info|debug|example|expected|was|before|"
    r"previously|raises?|handles?|what|why|how|when|if)\b)(?!\w{1,60}(?:Error|Exception)[:：])"
    r"(?:[A-Za-z][\w ()/#-]{0,32}|[^\x00-\x7f]{2,24})"
)
_BEFORE = (  # a logger's words, a debugger's mark, cells of a table of results, or any words before a name with its module
    r"(?:.{0,100}?\b(?:ERROR|CRITICAL|FATAL)\b(?:.{0,80}?[:\]|-] ?| {1,4})|\[?[EF]\d{3,4} \d\d:.{1,80}?\] |\*{3} "
    r"|\[[\d-]{8,10}[ T][\d:.,]{5,15}\](?:\[[\w.-]{1,80}\])?\[(?:ERROR|CRITICAL|FATAL)\] - "  # Hydra
    r"|\d{4}-\d\d-\d\d [\d:.,]{5,15} \| (?:ERROR|CRITICAL) {1,4}\| [\w.<>]{1,80}:[\w.<>]{1,80}:\d{1,6} - "  # loguru
    r"|.{0,300}?(?:it/s|s/it)[^\]]{0,80}\] ?"  # tqdm's bar
    r"|\s{0,8}\"message\": \"|[\"“](?=[A-Za-z_.]{3,60}(?:Error|Exception): )"  # torchelastic's error file; a quotation
    r"|.{0,200}?\b(?:msg|message|err|error|exception)=\""  # logfmt
    r"|\[(?=[A-Z])|\[\w{1,20}\]: ?|.{0,60}?(?:->|=>|→) {1,2}|\.{3,9} ?"
    r"|" + _LEAD + r"[:：] ?"
    r"|\|?(?:[^|]{1,120}\|\s){1,4}|.{1,400}?\s(?=(?:[a-z_]\w{0,60}\.){1,8}[A-Z]\w{0,60}(?:Error|Exception): ))?"
)
_LAST_LINE = re.compile(
    r"\s{0,8}"
    + _BEFORE
    + r"(?!LustreError|LNetError)((?:[A-Za-z_]\w{0,60}\.){0,8}(?:_?[A-Z]\w{0,60}(?:Error|Exception)|Exception|"
    r"BadGzipFile|BadZipFile|ArrowInvalid)"
    r"|(?:[A-Za-z_]\w{0,60}\.){1,8}(?:"
    + _OTHER_NAMES
    + r")|socket\.(?:gaierror|timeout)|(?:zlib|cv2)\.error): (\S.{0,1000})$"
)
LAST_LINES = (
    "Error: ", "Exception: ", "Timeout: ", "TimeoutExpired: ", "ServiceUnavailable: ", "BrokenProcessPool: ", "BadGzipFile: ",
    "BadZipFile: ", "ArrowInvalid: ",
    "error.Again: ", "NVMLError_", "socket.gaierror: ", "socket.timeout: ", "zlib.error: ", "cv2.error: ",
)  # fmt: skip
_EXCEPTION = re.compile(r"(?![A-Za-z]:[\\/])([A-Za-z_][\w.]{0,200}(?:\[[\w.]+\]|\(\w{1,60}\))?)(?:: ?(.*))?$")
_NAMES = re.compile(
    r"(?:[\w.]+\.)?(?:_?[A-Z]\w*|\w*error|timeout)(?:\([\w.]+\))?$"
)  # socket.error, RayTaskError(ValueError)
_CUT_NAMES = re.compile(r"[\w.]{0,200}(?:Error|Exception|Interrupt|Exit|Empty|Timeout)(?:\([\w.]+\))?$")
_BUILTIN = frozenset(
    name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, BaseException)
)
_KNOWN_NAMES = (*_BUILTIN, *(
    f"torch.{name}" for name in ("AcceleratorError", "OutOfMemoryError", "cuda.OutOfMemoryError", "distributed.DistBackendError",
                                 "distributed.DistNetworkError", "distributed.DistStoreError")
))  # fmt: skip
_RICH_FRAME = re.compile(r"[│|]\s+(\S{1,500}):(\d{1,9}) in (.{1,120}?)\s*[│|]?$")
_RICH_RULES = ("╭", "╰", "│", "┏", "┗")
_NOTEBOOK = re.compile(r"\s{0,4}([A-Z]\w{2,60}(?:Error|Exception|Interrupt))\s{2,80}")
"""What IPython writes before the header of a traceback."""
_CHAINS = {
    "During handling of the above exception, another exception occurred": "during handling",
    "The above exception was the direct cause of the following exception": "caused",
}
_LOGGER = re.compile(r"[^\]]{1,80}\] |\d[\d: .,-]{8,40} [\w.]{1,80} [A-Z]{4,8}: ")
"""A logger's stamp, with its digits blanked: ``ERROR 00-00 00:00:00 [core.py:000] ``."""
_GROUP_MARGIN = re.compile(r"^\s*(?:\+[-+ ]*|\|) ?")
_UVICORN = r"(?:INFO|WARNING|ERROR): {2,9}\S"
_OF_UVICORN = re.compile(_UVICORN)
_ENDS_MESSAGE = re.compile(
    r"(?:slurmstepd|srun): error: |\[?[IWEF]\d{3,4} \d\d:\d\d|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|={8,}|-{8,}|-- Process \d"
    r"|"
    + _UVICORN
    + r"|\s{0,3}(?:```|~~~)|</(?:pre|code|details)>"  # the end of a thread's code: what follows, a person wrote
)


def last_line(text: str) -> re.Match[str] | None:
    """Return the exception that a line is, as the last line of a traceback of which nothing else is left."""
    return _LAST_LINE.match(text) if any(end in text for end in LAST_LINES) else None


def goes_on_in_message(text: str) -> bool:
    """Whether a line below an exception's may be of its message: it is not blank, stamped, or of another traceback."""
    return bool(text.strip()) and not _ENDS_MESSAGE.match(text) and HEADER not in text and not _FRAME.match(text)


@dataclass(slots=True)
class Traceback:
    """One exception as it was printed. ``then`` names what followed it in the chain; ``link``: how, "" for no chain."""

    line: int
    at: float | None = None
    exception: str = ""
    message: str = ""
    frames: tuple[Frame, ...] = ()
    then: list[str] = field(default_factory=list)
    then_said: list[str] = field(default_factory=list)  # with their messages
    files: tuple[str, ...] = ()  # of the frames of all of them
    link: str = ""


def _is_cut_short(name: str) -> bool:
    """Whether a paste ended within a name: the beginning of a builtin exception or one of torch, and no name of its own."""
    return name not in _BUILTIN and not _CUT_NAMES.match(name) and any(each.startswith(name) for each in _KNOWN_NAMES)


class Assembler:
    """The traceback that one stream is printing: takes lines, and keeps the whole ones in ``finished``.

    States: idle → frames (after the header) → message (after the exception's line) → gap (after a blank line, a chain may
    go on) → idle, with the traceback in ``finished``.
    """

    def __init__(self) -> None:
        self._state = "idle"
        self._margin = ""
        self._hint = ""  # the exception's name in IPython's header, above its frames
        self._is_cut = False  # no header was seen: only the name of an exception makes it a traceback
        self._blocks: list[Traceback] = []
        self._links: list[str] = []
        self._frames: list[Frame] = []
        self._message: list[str] = []
        self._count = 0
        self.finished: list[Traceback] = []

    @property
    def busy(self) -> bool:
        """True while a traceback is being printed."""
        return self._state != "idle"

    def feed(self, number: int, text: str, at: float | None) -> bool:
        """Take one line; True if the traceback consumed it. A finished traceback may be waiting afterwards."""
        if HEADER in text:
            self._start(number, text, at)
            return True
        if self._state == "idle" and not self._starts_cut(number, text, at):
            return False
        body = self._without_margin(text)
        return {"frames": self._in_frames, "message": self._in_message, "gap": self._in_gap}[self._state](body)

    def close(self) -> None:
        """End what is being printed: the file ended, or another kind of line began."""
        if self._state == "frames" and self._frames and self._blocks:
            self._blocks[-1].frames = tuple(reversed(self._frames[-MAX_FRAMES:]))
        if self._state == "frames" and self._hint:
            self._blocks[-1].exception = self._hint
        elif self._state == "message":
            self._end_message()
        whole = [block for block in self._blocks if block.exception or (block.frames and not self._is_cut)]
        if whole:
            root = whole[0]
            root.then = [block.exception for block in whole[1:] if block.exception]
            root.files = tuple(frame.file for block in whole for frame in block.frames)
            root.then_said = [f"{block.exception}: {block.message}" for block in whole[1:] if block.exception]
            root.link = self._links[-1] if root.then and self._links else ""
            self.finished.append(root)
        self._blocks, self._links, self._frames, self._message, self._state = [], [], [], [], "idle"

    def _start(self, number: int, text: str, at: float | None) -> None:
        chained = self._state == "gap" and len(self._links) == len(self._blocks) > 0
        if not chained or len(self._blocks) >= MAX_CHAIN:
            self.close()
        before = text[: text.index(HEADER)]
        named = _NOTEBOOK.fullmatch(before)
        self._begin(number, at, "" if named else re.sub(r"\d", "0", before))
        self._hint = named[1] if named else ""

    def _starts_cut(self, number: int, text: str, at: float | None) -> bool:
        """Begin with a traceback whose header was cut off: at a frame, or at its last line, the exception by its full name."""
        if not _CUT_FRAME.match(text) and not _QUALIFIED.match(text):
            return False
        self._begin(number, at, "")
        self._is_cut = True
        return True

    def _begin(self, number: int, at: float | None, margin: str) -> None:
        self._margin, self._is_cut, self._hint = margin, False, ""
        self._blocks.append(Traceback(number, at))
        self._frames, self._message, self._count, self._state = [], [], 0, "frames"

    def _without_margin(self, text: str) -> str:
        """Take off what a logger repeats before every line, compared with its digits blanked; and a group's bars."""
        if self._margin and "+" in self._margin:
            return _GROUP_MARGIN.sub("", text)
        width = len(self._margin)
        blanked = re.sub(r"\d", "0", text[:width])
        if width and blanked.rstrip() == self._margin.rstrip():
            return text[width:]
        if width and not self._frames and (stamp := _LOGGER.match(self._margin)) and blanked.startswith(stamp[0]):
            self._margin = stamp[0]  # the logger's own words came between its stamp and the header
            return text[len(self._margin) :]
        return text

    def _in_frames(self, text: str) -> bool:
        self._count += 1
        if found := _FRAME.match(text) or _RICH_FRAME.match(text):
            file, line, function = found[1], int(found[2]), (found[3] or "").strip()
            self._frames.append(Frame(function=function, file=file, line=line))
            del self._frames[: -2 * MAX_FRAMES]
            return True
        if not text.strip() or text[0] in " \t" or text.startswith(_RICH_RULES):
            return self._count < MAX_BLOCK_LINES
        if _OF_UVICORN.match(text):
            self.close()
            return False
        found = _EXCEPTION.match(text)
        cut = bool(self._margin) and self._margin.startswith(re.sub(r"\d", "0", text).rstrip())
        if cut or (found is not None and found[2] is None and _is_cut_short(found[1])):
            self.close()
            return True
        if found is None or not (_CUT_NAMES if self._is_cut else _NAMES).match(found[1]):
            if (self._frames or self._hint) and not self._is_cut and self._count < MAX_BLOCK_LINES:
                return True  # a line of source that spilled: f-strings and heredocs do
            self.close()
            return False
        block = self._blocks[-1]
        block.exception = found[1]
        block.frames = tuple(reversed(self._frames[-MAX_FRAMES:]))
        self._message, self._state = [found[2] or ""], "message"
        return True

    def _in_message(self, text: str) -> bool:
        if not text.strip():
            self._end_message()
            return True
        if text.strip().rstrip(":") in _CHAINS or _ENDS_MESSAGE.match(text):
            self._end_message()
            return self._in_gap(text)
        wraps = self._blocks[-1].exception.endswith(")") or self._blocks[-1].exception.startswith("ray.exceptions.")
        if wraps and _CUT_FRAME.match(text):
            self._end_message()  # a wrapper, such as Ray's, in whose message the wrapped traceback stands
            self._state, self._frames = "frames", []
            return self._in_frames(text)
        if len(self._message) >= MAX_MESSAGE_LINES:
            self.close()
            return False
        self._message.append(text)
        return True

    def _end_message(self) -> None:
        self._blocks[-1].message = "\n".join(self._message)[:MAX_MESSAGE_CHARACTERS].strip()
        self._message, self._count, self._state = [], 0, "gap"

    def _in_gap(self, text: str) -> bool:
        sentence = text.strip().rstrip(":")
        if sentence in _CHAINS:
            self._links.append(_CHAINS[sentence])
            return True
        self._count += 1
        if not sentence and self._count <= MAX_GAP_LINES:
            return True
        self.close()
        return False
