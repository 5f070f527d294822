"""The verdict for a terminal: the culprit first, then why, victims, rejected candidates, what is missing, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from analyzers.model.verdict import Culprit, EvidenceItem, Verdict
from collectors.records.printable import printable
from service.reports import advice, next_steps, story, unread
from service.reports.instants import moment

NARROWEST = 40
WIDEST = 110  # longer lines are hard to read, however wide the terminal
LEAST_SKEW_SECONDS = 0.1  # below, it is not shown
MOST_ROOTS = 8
MOST_UNREAD = 3
PAST = "The incident is closed, and what follows was advised while it was open."
MOST_ROWS = 6  # rejected, suspects, chains: the document has all of them

_ASCII = str.maketrans({"→": "->", "—": "--", "–": "-", "…": "...", "×": "x", "•": "*", "≥": ">=", "≤": "<=", "’": "'"})
_STYLES = {"bold": "1", "dim": "2", "red": "1;31", "green": "1;32", "yellow": "1;33"}
_TONES = {"named": "red", "healthy": "green", "open": "yellow"}


def render(
    verdict: Verdict, *, width: int = 80, color: bool = False, unicode: bool = True, plan: tuple[str, str] | None = None,
    over: str = "",
) -> str:  # fmt: skip
    """Return the verdict as text that ends in a newline; ``unicode`` False gives plain ASCII.

    ``plan``: the kind of what is planned, and it in a sentence; it goes before what the verdict by itself advises.
    ``over``: why its incident is over, of one that is closed: then the advice is of the past.
    """
    page = _Page(max(NARROWEST, min(width, WIDEST)), color)
    headlines = story.headlines(verdict)
    for headline in headlines[:MOST_ROOTS]:
        page.line(str(headline), style=_TONES[story.tone(verdict)])
    if len(headlines) > MOST_ROOTS:
        page.line(f"… and {len(headlines) - MOST_ROOTS:,} more (--json has them)", style=_TONES[story.tone(verdict)])
    for title, rows in (
        ("Why", _why(verdict)),
        ("Who waits", _victims(verdict)),
        ("What it costs", _costs(verdict)),
        ("Suspects, none of them named", _open_suspects(verdict)),
        ("Rejected", _rejected(verdict)),
        ("Missing", _missing(verdict)),
        (
            "What was advised" if over else "What to do",
            [*_past(over), *(_planned(verdict, plan) if plan else _action(verdict))],
        ),
        ("Seen", _seen(verdict)),
    ):
        page.section(title, list(rows))
    text = printable("\n".join(page.lines), keep="\x1b" if color else "") + "\n"
    return text if unicode else text.translate(_ASCII).encode("ascii", "replace").decode()


class _Page:
    """Lines of one width; sections are a bold title and indented, wrapped rows."""

    def __init__(self, width: int, color: bool) -> None:
        self.width, self.color = width, color
        self.lines: list[str] = []

    def line(self, text: str, *, style: str = "", indent: str = "", hanging: str | None = None) -> None:
        """Add one wrapped paragraph; foreign text loses its escape characters here, before styles are added."""
        hang = indent if hanging is None else hanging
        wrapped = textwrap.wrap(printable(text.replace("\t", " ")), self.width, initial_indent=indent,
                                subsequent_indent=hang, break_on_hyphens=False)  # fmt: skip
        self.lines.extend(self._styled(row, style) for row in wrapped)

    def section(self, title: str, rows: list[tuple[str, str]]) -> None:
        """Add a titled section of (mark, text) rows, if it has any; a ``$`` mark is a command and never wrapped."""
        if not rows:
            return
        self.lines.extend(("", self._styled(title, "bold")))
        for mark, text in rows:
            if mark == "$":
                self.lines.append(f"    {printable(text)}")
            else:
                lead = f"  {mark} " if mark else "  "
                self.line(text, indent=lead, hanging=" " * len(lead))

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.color and style else text


def _why(verdict: Verdict) -> Iterator[tuple[str, str]]:
    for why, culprits in reasons(verdict)[:MOST_ROOTS]:
        yield "", story.reason(why, culprits, named=len(verdict.culprits) > len(culprits))
    cited, first, sent = _cited(verdict), verdict.first_symptom, story.by_agents(verdict)
    if first:
        at = moment(first.at)
        sources = [item.source for item in cited if item.text == first.text]
        yield (
            "",
            f"First symptom{f', {at}' if at else ''}: {sentence(first.text)}{_place(*sources[:1], sent=sent)}",
        )
        cited = [item for item in cited if item.text != first.text]
    for item in cited:
        yield "-", f"{item.text}{_place(item.source, sent=sent)}"
    if story.tone(verdict) == "named":
        yield "", story.calibration(verdict)


def _place(source: str = "", *, sent: bool = False) -> str:
    """Return where a sentence is from; what an agent ``sent`` is no file that could be read here."""
    return f"  [{'agent: ' if sent else ''}{source}]" if source else ""


def _cited(verdict: Verdict) -> list[EvidenceItem]:
    """Return the first pieces of evidence of each culprit in turn, so that none goes without."""
    known = {item.id: item for item in verdict.evidence}
    share = max(1, MOST_ROWS // max(1, len(verdict.culprits)))
    cited = dict.fromkeys(one for culprit in verdict.culprits for one in culprit.evidence[:share] if one in known)
    return _once([known[one] for one in cited][:MOST_ROWS]) or list(verdict.evidence[:MOST_ROWS])


def _once(items: list[EvidenceItem]) -> list[EvidenceItem]:
    """Leave out a line that another sentence about the same line quotes."""
    return [
        one for one in items
        if not any(one.text != other.text and one.source == other.source and one.text in other.text for other in items)
    ]  # fmt: skip


def reasons(verdict: Verdict) -> list[tuple[str, list[Culprit]]]:
    """Return why, once for all the culprits that it holds for."""
    found: dict[str, list[Culprit]] = {}
    for culprit in verdict.culprits:
        found.setdefault(culprit.why or story.fault(verdict, culprit.root), []).append(culprit)
    return [(reason, culprits) for reason, culprits in found.items() if reason]


def sentence(text: str) -> str:
    """Begin with a capital and end with a stop."""
    return story.reason(text, (), named=False)


def _victims(verdict: Verdict) -> Iterator[tuple[str, str]]:
    if verdict.victims.count:
        yield "", story.waiting(verdict)
    for place, chain in enumerate(verdict.victims.chains[:MOST_ROWS]):
        yield "", chain if place else f"{chain}   (each waits for the next)"
    if len(verdict.victims.chains) > MOST_ROWS:
        yield "", f"… and {len(verdict.victims.chains) - MOST_ROWS:,} more chains (--json has them)"


def _costs(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield what a trace shows of what each kind of slowness costs, beside what names the culprit."""
    if verdict.symptom != "slow" or "op_timings" not in verdict.coverage.sources or not verdict.culprits:
        return
    cited = {item.text for item in _cited(verdict)}
    for item in verdict.evidence:
        if item.analyzer == "slow" and item.text not in cited:
            yield "-", item.text


def _open_suspects(verdict: Verdict) -> Iterator[tuple[str, str]]:
    if not verdict.abstained:
        return
    for suspect in verdict.suspects[:MOST_ROWS]:
        why = f": {suspect.why}" if suspect.why else ""
        yield "-", f"{story.name_culprits([suspect])}, {story.confidence(suspect.probability)}{why}"


def _rejected(verdict: Verdict) -> Iterator[tuple[str, str]]:
    rejected = story.rejections(verdict)
    for name, why in rejected[:MOST_ROWS]:
        yield "-", f"{name}: {why}"
    if len(rejected) > MOST_ROWS:
        yield "", f"… and {len(rejected) - MOST_ROWS:,} more (--json has them)"


def _missing(verdict: Verdict) -> Iterator[tuple[str, str]]:
    if how := next_steps.unrecorded(verdict):
        yield "!", how
    for missing in sorted(verdict.missing, key=lambda item: not item.matters)[: 2 * MOST_ROWS]:
        decides = "" if missing.matters else " (would not change the answer)"
        yield "!" if missing.matters else "-", f"{missing.what}{decides}"


def _past(over: str) -> Iterator[tuple[str, str]]:
    if over:
        yield "", f"{PAST} {sentence(over)}"


def _planned(verdict: Verdict, plan: tuple[str, str]) -> Iterator[tuple[str, str]]:
    kind, said = plan
    yield from (
        ("", text) for text in (next_steps.first_of_all(verdict), said, next_steps.beside_plan(verdict, kind)) if text
    )


def _action(verdict: Verdict) -> Iterator[tuple[str, str]]:
    if how := next_steps.first_of_all(verdict):
        yield "", how
    if verdict.abstained and (own := advice.own_steps(verdict)):
        yield from (("-", one) for one in own)
    elif verdict.abstained:
        steps = next_steps.next_steps(verdict)
        yield (
            "",
            next_steps.before_collecting(verdict)
            if steps
            else f"{next_steps.leave(verdict)} {sentence(verdict.action.why)}",
        )
        for reason, command in steps:
            yield "", f"{reason}:"
            yield "$", command
    if not verdict.abstained or verdict.action.kind != "none":
        why = f" {sentence(verdict.action.why)}" if verdict.action.why else ""
        yield "", advice.what_to_do(verdict) + why
    if not verdict.abstained:
        yield from (("-", sentence) for sentence in advice.own_steps(verdict))


def _seen(verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield "", story.coverage(verdict)
    if verdict.dump_skew_seconds is not None and verdict.dump_skew_seconds >= LEAST_SKEW_SECONDS:
        yield "", f"The dumps were taken within {verdict.dump_skew_seconds:,.1f} s of one another."
    without = unread.count(verdict)
    if without:
        by_agents = story.by_agents(verdict)  # then they are no files of this machine
        plural = "s" if without != 1 else ""
        yield "", f"{without:,} " + (f"source{plural} that gave nothing:" if by_agents else f"file{plural} not read:")
        for one in unread.lines(verdict)[:MOST_UNREAD]:
            yield "-", one
        if without > MOST_UNREAD and by_agents:
            yield "", f"… and {without - MOST_UNREAD:,} more (--json has them)"
        elif without > MOST_UNREAD:
            yield "", "All of them, with the reason for each:"
            yield "$", "faulthound read PATH"
