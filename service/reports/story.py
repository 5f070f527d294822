"""The verdict in sentences, the same for the terminal and the page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analyzers.model.fault_classes import has, in_words
from analyzers.model.verdict import Culprit, Verdict
from analyzers.verdict.calibrated import LIKELY, SURE
from service.reports.hostlists import parse_ranks, ranks_for_people
from service.reports.instants import moment
from service.reports.source_names import counted

LOCAL = ("local rank ", "process ")  # how a process is called of which only a number on its node is known
NOT_A_MACHINE = ("code", "data", "library", "storage", "platform")
NO_MACHINE = " (not a machine)"

_CONFIDENCE = (
    (0.95, "almost certain"),
    (SURE, "very likely"),
    (LIKELY, "likely"),
    (0.35, "possible"),
    (0.0, "a weak lead"),
)

_DEEDS = {  # symptom → what one culprit does, what several do
    "hang": ("hangs the job", "hang the job"),
    "slow": ("slows the job", "slow the job"),
    "crash": ("brought the job down", "brought the job down"),
    "numeric": ("corrupts the job's numbers", "corrupt the job's numbers"),
    "hardware": ("shows a hardware fault", "show hardware faults"),
}

_READINGS = {"device", "samples", "unread"}
"""Sources that show devices, and no job that runs."""

_BY_A_SETTING = ("runs slower than its peers, by a setting", "run slower than their peers, by a setting")

_IF_IT_STANDS = ("holds the job up if it stands still,", "hold the job up if it stands still,")
"""Of a hang that no record shows to be one."""

_NAMELESS = {  # a kind whose culprit no record names
    "rank": "A process of unknown rank",
    "group": "A group of unknown ranks",
    "stage": "A stage of unknown ranks",
    "link": "A network link",
    "switch": "A switch",
    "unknown": "Unknown",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """One line for one root: the culprit, the effect, when, how sure."""

    who: str
    what: str
    when: str  # "since 2026-11-21 03:14:07 UTC" of what lasts, "at …" of what happened once
    sure: str

    def __str__(self) -> str:
        what = f" {self.what if self.when else self.what.removesuffix(',')}" if self.what else ""
        return f"{self.who}{what}{f' {self.when}' if self.when else ''}{f': {self.sure}' if self.sure else ''}"


def tone(verdict: Verdict) -> str:
    """Return how the answer is to be shown: healthy, open (nothing is named) or named."""
    if verdict.abstained:
        return "open"
    return "healthy" if verdict.symptom == "healthy" or not verdict.culprits else "named"


def of_fleet(verdict: Verdict) -> bool:
    """Whether it is about the fleet, several nodes at once, and not about a job."""
    return "agents_affected" in verdict.coverage.sources


def ended_from_outside(verdict: Verdict) -> bool:
    """Whether the job was ended by a person or the platform, and no more evidence of it comes."""
    return bool(verdict.roots) and all(has(root.fault_class, "from_outside") for root in verdict.roots)


def became_slower(verdict: Verdict) -> bool:
    """Whether it is about steps of a running job that became longer, and not about traces."""
    return (
        verdict.symptom == "slow" and verdict.first_symptom is not None and "op_timings" not in verdict.coverage.sources
    )


def no_fault(verdict: Verdict) -> str:
    """Say in which pause a job is that has no fault, or that it runs; empty: a fault is named, or nothing is known."""
    if tone(verdict) != "healthy":
        return ""
    if any(root.fault_class.startswith("pause_") for root in verdict.roots):
        seen = (one.text for one in verdict.evidence if one.analyzer == "pauses")
        return next(seen, "the job is in a pause")
    return "the job is running, and no rank waits longer than usual" if verdict.symptom == "healthy" else ""


def headlines(verdict: Verdict) -> tuple[Headline, ...]:
    """Return one headline for each root, and one for a healthy or undecided job."""
    if tone(verdict) == "open":
        if (of_fleet(verdict) or became_slower(verdict)) and verdict.first_symptom is not None:
            text = f"{verdict.first_symptom.text[:1].upper()}{verdict.first_symptom.text[1:]}"
            return (Headline("Nothing is named.", f"{text}, and the evidence does not decide why.", "", ""),)
        if verdict.symptom == "numeric" and verdict.first_symptom is not None:
            first = verdict.first_symptom.text
            ended = any(one.kind == "platform" for one in verdict.rejected)
            deed = "no machine is named" + ("; then a person or the platform ended the job" if ended else "")
            return (Headline(f"{first[:1].upper()}{first[1:]}:", deed, "", ""),)
        if ended_from_outside(verdict) and verdict.first_symptom is not None:
            what = "and the evidence does not decide what held it up."
            return (Headline("The job stood still until it was ended from outside,", what, "", ""),)
        seen = {
            "unknown": "The evidence does not decide what happened.",
            "healthy": "The evidence does not show whether this job is healthy.",
        }
        if any(root.fault_class == "engine_died" for root in verdict.roots):
            return (Headline("Nothing is named.", "The server's engine has died, and no line read says why.", "", ""),)
        shown = "The job is slow" if verdict.symptom == "slow" else f"The job shows a {verdict.symptom}"
        sentence = seen.get(verdict.symptom, f"{shown}, and the evidence does not decide the culprit.")
        return (Headline("Nothing is named.", sentence, "", ""),)
    if tone(verdict) == "healthy":
        if any(root.fault_class.startswith("pause_") for root in verdict.roots):
            return (Headline("No fault:", "the job is in a pause", "", ""),)
        sources = verdict.coverage.sources.keys()
        compared = "op_timings" in sources or sources <= _READINGS
        if verdict.symptom == "healthy" and compared and verdict.first_symptom:
            return (Headline("Healthy:", verdict.first_symptom.text, "", ""),)
        if verdict.symptom == "healthy":
            return (Headline("Healthy:", "the job is running, and no rank waits longer than usual", "", ""),)
        if (verdict.symptom == "unknown" or verdict.cause == "none") and verdict.action.why:
            return (Headline(f"{verdict.action.why[:1].upper()}{verdict.action.why[1:]}", "", "", ""),)
        return (Headline("No culprit:", "the evidence accuses no rank and no node", "", ""),)
    roots = dict.fromkeys(culprit.root for culprit in verdict.culprits)
    every = (_headline(verdict, [one for one in verdict.culprits if one.root == root]) for root in roots)
    return tuple(dict.fromkeys(every))  # two operations of one group are two roots


def _headline(verdict: Verdict, culprits: list[Culprit]) -> Headline:
    plural = len(culprits) > 1 or (culprits[0].kind in ("rank", "group", "stage") and len(culprits[0].ranks) > 1)
    assumed = any(root.assumes for root in verdict.roots if root.root == culprits[0].root)
    deeds = _IF_IT_STANDS if assumed else _DEEDS.get(verdict.symptom, ("is behind it", "are behind it"))
    of_several = len({culprit.root for culprit in verdict.culprits}) > 1
    own = next((root.onset for root in verdict.roots if root.root == culprits[0].root), None)
    onset = own or (None if of_several else verdict.onset)
    when = f"{'at' if verdict.symptom == 'crash' else 'since'} {moment(onset)}" if onset else ""
    of_root = next((root.fault_class for root in verdict.roots if root.root == culprits[0].root), "")
    who = "A person or the platform" if of_root == "terminated" else name_culprits(culprits)
    if has(of_root, "own_input") or (verdict.symptom == "slow" and any(map(_holds_others, culprits))):
        who = (by_rank := _ranks_first(culprits)) or who
        plural = plural or (by_rank is not None and len(culprits[0].ranks) > 1)
    deed = (_BY_A_SETTING if of_root == "gray_setting" else deeds)[plural]
    # That it was ended is certain, and the probability is of more than that.
    if has(of_root, "was_ended") or _was_killed(verdict, culprits):
        if all(one.kind == "node" and one.id != one.kind for one in culprits):
            who = _ranks_first(culprits) or who
        plural = plural or sum(len(one.ranks) for one in culprits) > 1
        ends = f"{'were' if plural else 'was'} killed (SIGKILL)"
        chance = f"{min(one.probability for one in culprits) * 100:.0f} %"
        accused = f"{'their nodes are' if plural else 'its node is'} suspected ({chance})"
        by_whom = f"{when}, and nothing read shows by whom".removeprefix(", ")
        return Headline(who, ends, by_whom, accused if _was_killed(verdict, culprits) else "")
    if verdict.symptom == "crash" and of_root != "terminated" and _is_part(verdict, culprits):
        who, deed = _instance_first(verdict, culprits) or who, "failed"
    sure = min(one.probability for one in culprits)
    if sure < LIKELY and all(one.kind in NOT_A_MACHINE for one in culprits):
        # A page shows it larger than its chance; and its action says that machines are not cleared.
        who = f"Perhaps {who[:1].lower()}{who[1:].replace(NO_MACHINE, '')}"
    return Headline(who, deed, when, confidence(sure))


def _was_killed(verdict: Verdict, culprits: Sequence[Culprit]) -> bool:
    """Whether a signal that no machine sends by itself ended it, and nothing of its machine, a suspect, agrees."""
    own = next((root for root in verdict.roots if root.root == culprits[0].root), None)
    return own is not None and own.fault_class == "process_killed" and "hardware" not in own.families


def _is_part(verdict: Verdict, culprits: Sequence[Culprit]) -> bool:
    """Whether these are instances of a role, and the job's others go on without them."""
    of_role = all(culprit.role and culprit.kind in ("node", "rank", "role") for culprit in culprits)
    return of_role and (verdict.action.kind == "restart_role" or all(culprit.instances for culprit in culprits))


def _instance_first(verdict: Verdict, culprits: Sequence[Culprit]) -> str:
    """Name an instance before its node: ``Rollout 1 (node vm)``; empty where not exactly one is known, on a node."""
    one, action = culprits[0], verdict.action
    known = one.instances or ((action.instance,) if action.kind == "restart_role" and action.role == one.role else ())
    if len(culprits) != 1 or len(known) != 1 or not known[0] or one.kind != "node" or not one.role:
        return ""
    return f"{one.role[:1].upper()}{one.role[1:]} {known[0]} (node {one.id})"


def called(kind: str, name: str) -> str:
    """Return kind and name, the kind alone where no record names it: ``node gpu-0413``, ``code``."""
    return f"{kind} {name}" if name not in ("", kind) else kind


def is_named_after_ranks(name: str) -> bool:
    """Whether a set has no name of its own, and so that of its ranks."""
    return name.startswith(("ranks ", "rank "))


def by_agents(verdict: Verdict) -> bool:
    """Whether agents sent what it rests on: then its sources are no files."""
    return bool(verdict.coverage.sources.get("coverage") or verdict.coverage.sources.get("command_result"))


def _holds_others(culprit: Culprit) -> bool:
    """Whether it is a node with ranks that are not guilty: by what its own ranks show, the node is not slow as a whole."""
    return culprit.ranks_on_node is not None and 0 < len(culprit.ranks) < culprit.ranks_on_node


def _ranks_first(culprits: Sequence[Culprit]) -> str | None:
    """Name ranks of which no machine is accused before the node on which they are found; None where a culprit is another."""
    if any(culprit.kind != "node" or not culprit.ranks or culprit.role for culprit in culprits):
        return None
    named = listed(f"{plural_ranks(culprit.ranks)} (node {culprit.id})" for culprit in culprits)
    return f"{named[:1].upper()}{named[1:]}"


def name_culprits(culprits: Sequence[Culprit]) -> str:
    """Name culprits of one root in one phrase: ``Node gpu-0413 (rank 3304)``, ``Ranks 9 and 14``."""
    if all(culprit.kind == "rank" and culprit.ranks and not _names_role(culprit) for culprit in culprits):
        ranks = sorted({rank for culprit in culprits for rank in culprit.ranks})
        return f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {listed(str(rank) for rank in ranks)}"
    return listed(dict.fromkeys(_one(culprit) for culprit in culprits))


def _names_role(culprit: Culprit) -> bool:
    """Whether its id names its role: its job has several, which share numbers."""
    return bool(culprit.role) and culprit.id.startswith(f"{culprit.role} ")


def _one(culprit: Culprit) -> str:
    whose = f"{culprit.role} " if culprit.role and culprit.kind != "role" else ""
    held = f" ({whose}{plural_ranks(culprit.ranks)})" if culprit.ranks else ""
    if culprit.instances and whose and culprit.kind != "rank":
        held = f" ({whose}{listed(culprit.instances)})"
    if culprit.kind == "rank" and culprit.ranks and whose:
        named = f"{whose}{plural_ranks(culprit.ranks)}"
        return f"{named[:1].upper()}{named[1:]}"
    if culprit.kind in ("rank", "group") and culprit.id.startswith(LOCAL):
        return f"{culprit.id[:1].upper()}{culprit.id[1:]}"
    if culprit.kind in ("group", "stage"):
        # A set without a name of its own is called after its ranks.
        group = "" if is_named_after_ranks(culprit.id) else f" ({called(culprit.kind, culprit.id)})"
        ranks = plural_ranks(culprit.ranks)
        if len(culprit.ranks) == 1:
            return f"{ranks.capitalize()}{group}"
        if culprit.ranks or culprit.id in ("", culprit.kind):
            return f"One or more of {ranks}{group}" if culprit.ranks else _NAMELESS[culprit.kind]
        return f"One or more of {culprit.id}" if ", " in culprit.id else f"{culprit.kind.capitalize()} {culprit.id}"
    if culprit.kind == "storage" and culprit.ranks:
        at = f" on {culprit.id}" if culprit.id not in ("", culprit.kind) else ""
        use = "uses" if len(culprit.ranks) == 1 else "use"
        return f"The storage that {plural_ranks(culprit.ranks)}{at} {use}{NO_MACHINE}"
    if culprit.kind in NOT_A_MACHINE:
        named = {"platform": "The platform around the job", "storage": "The storage"}.get(
            culprit.kind, f"The {culprit.kind}"
        )
        at = " that " if culprit.kind == "storage" else " on "
        used = " uses" if culprit.kind == "storage" else ""  # its place is where it was met
        detail = f"{at}{culprit.id}{used}" if culprit.id and culprit.id != culprit.kind else ""
        if culprit.id.startswith(("rank ", *LOCAL)):  # whose code
            detail = f" of {plural_ranks(culprit.ranks) if culprit.ranks else culprit.id}"
        return f"{named}{detail}{'' if culprit.kind == 'platform' else NO_MACHINE}"
    if culprit.id in ("", culprit.kind):
        name = _NAMELESS.get(culprit.kind, f"A {culprit.kind} of unknown name")
        return f"{name}{held}"
    return f"{culprit.kind.capitalize()} {culprit.id}{held if culprit.kind != 'rank' else ''}"


def reason(why: str, culprits: Sequence[Culprit], *, named: bool) -> str:
    """Return why as a sentence; ``named`` puts who before it, unless it begins with them."""
    name = name_culprits(culprits) if culprits else ""
    text = f"{why.strip()}{'' if why.strip().endswith(('.', '?', '!')) else '.'}"
    if named and not text.lower().startswith(name.lower()):
        return f"{name}: {text}"
    # "ib6" and "mlx5_0" are names, at the beginning of a sentence too.
    return f"{text[:1].upper()}{text[1:]}" if text.partition(" ")[0].strip(",.:;").isalpha() else text


def plural_ranks(ranks: Iterable[int], most: int = 8) -> str:
    """Return ``rank 7`` or ``ranks 7, 9-12``."""
    known = tuple(ranks)
    return f"rank{'s' if len(known) != 1 else ''} {ranks_for_people(known, most)}"


def listed(words: Iterable[str], most: int = 12) -> str:
    """Join words as a sentence does: ``a``, ``a and b``, ``a, b and c``; after ``most``, how many are left."""
    every = list(words)
    if len(every) > most:
        every = [*every[:most], f"{len(every) - most:,} more"]
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}" if every else ""


def confidence(probability: float) -> str:
    """Return a probability in words and as a number: ``very likely (87 %)``."""
    word = next(word for floor, word in _CONFIDENCE if probability >= floor)
    number = "> 99" if probability > 0.995 else f"{probability * 100:.0f}"
    return f"{word} ({number} %)"


def calibration(verdict: Verdict) -> str:
    """Return what the probabilities of what is named were calibrated on: the least that any of them was."""
    labels = {one.root for one in verdict.culprits}
    named = [root for root in verdict.roots if root.root in labels] or list(verdict.roots)
    if any(root.calibration == "none" for root in named) or not named:
        return "The percentages are not calibrated for faults of this kind: read them as an order, not as a frequency."
    least = min(named, key=lambda root: root.n)
    whose = "simulated incidents" if least.calibration == "simulator" else "incidents of your own"
    return f"The percentages are calibrated on {least.n:,} {whose} of this kind."


def fault(verdict: Verdict, root: str) -> str:
    """Return the fault class of a root in words, empty where there is none."""
    found = next((known.fault_class for known in verdict.roots if known.root == root), "")
    return in_words(found)


def waiting(verdict: Verdict) -> str:
    """Return how many ranks wait and which; empty where none does."""
    if not verdict.victims.count:
        return ""
    ranks = _of_people(verdict.victims.ranks)
    if len(verdict.victims.roles) > 0:
        ranks = "; ".join(f"{role} {_of_people(found)}" for role, found in verdict.victims.roles.items())
    count = verdict.victims.count
    verb = ("waits" if count == 1 else "wait") if verdict.symptom == "hang" else ("suffers" if count == 1 else "suffer")
    if verdict.abstained and verdict.symptom == "hang":
        return f"{count:,} rank{'s' if count != 1 else ''} {verb}, and what for is not decided: {ranks}."
    return f"{count:,} rank{'s' if count != 1 else ''} {verb} without fault of {'its' if count == 1 else 'their'} own: {ranks}."


def _of_people(stated: str) -> str:
    """Return the ranges of a document as people write them; what is no range as it stands."""
    try:
        return ranks_for_people(parse_ranks(stated))
    except ValueError:
        return stated


def coverage(verdict: Verdict) -> str:
    """Return in one or two sentences what the verdict rests on."""
    seen = verdict.coverage
    if of_fleet(verdict):
        return f"{seen.sources['agents_affected']:,} of {seen.sources.get('agents', 0):,} agents are affected."
    total = of_expected(verdict)
    kinds = [counted(name, count) for name, count in sorted(seen.sources.items()) if count and name != "unread"]
    of_job = seen.ranks_expected if total and seen.ranks_expected is not None else seen.ranks_seen
    sentence = f"{seen.ranks_seen:,}{total} rank{'s' if of_job != 1 else ''} seen"
    if kinds:
        sentence += f", in {listed(kinds)}"
    if seen.other_attempts:
        sentence += f". Attempt {verdict.attempt} was judged; --attempt chooses among {listed(seen.other_attempts)} too"
    return f"{sentence}."


def of_expected(verdict: Verdict) -> str:
    """Return `` of 8`` or `` of at least 5`` for the ranks of the job; empty where no more are known than were seen."""
    seen = verdict.coverage
    least = seen.ranks_seen + seen.ranks_at_least  # of a job that states fewer than are seen nothing is known
    if seen.ranks_expected is None or seen.ranks_expected < least:
        return ""
    return f" of {'at least ' if seen.ranks_at_least else ''}{seen.ranks_expected:,}"


def rejections(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """Return the rejected candidates and why, each reason once."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in verdict.rejected:
        found.setdefault((one.kind, one.why), []).append(one.id)
    return tuple((_rejected(kind, tuple(dict.fromkeys(ids))), why) for (kind, why), ids in found.items())


def _rejected(kind: str, ids: tuple[str, ...]) -> str:
    by_name = kind == "rank" and not all(one[:1].isdigit() for one in ids)  # "rollout 2", or its node
    if len(ids) > 1:
        return f"{listed(ids)}, each" if by_name else f"{kind}s {listed(ids)}, each"
    if by_name and ids[0] != kind:
        return ids[0]
    several = kind == "rank" and not ids[0].isdigit()  # "3-5" and "3,5" are several
    return called("ranks" if several and ids[0] != kind else kind, ids[0])
