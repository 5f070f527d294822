"""Learn the cause of a text from its words, and measure that on sets of texts that were left out.

FAULTHOUND_EXCERPTS=FOLDER python -m tests.acceptance.text_class [--smallest]

FOLDER has a folder for each set: texts, and ``truth.jsonl`` with a row a text: ``file``, ``decidable``, ``negative`` (nothing
failed), ``cause`` (the best first) and ``also`` (what a fair judge accepts). The texts are of public threads and other people's:
they are no part of this project, and the table holds words and numbers only. Each set is answered by what was learned of the
others; then the table is learned of all (``analyzers/knowledge/texts.toml``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from analyzers.diagnosis.text_class.classifier import Classifier, terms_of
from analyzers.diagnosis.text_class.text_class import SAID
from collectors.formats.prose.troubles import may_report
from tests.bench.measure import REPOSITORY, provenance

FOLDER = "FAULTHOUND_EXCERPTS"
TABLE = REPOSITORY / "analyzers" / "knowledge" / "texts.toml"
MEANS: Mapping[str, tuple[str, ...]] = {  # a labeller's word -> causes of a verdict
    "code": ("code",), "data": ("data",), "storage": ("storage",), "network": ("network",), "machine": ("machine",),
    "gpu": ("machine",), "host": ("machine", "platform"), "platform": ("platform",), "configuration": ("code", "platform"),
    "memory": ("code", "platform"), "imbalance": ("code",), "outside": ("platform",),
}  # fmt: skip
THRESHOLD = 0.2
FEWEST_KNOWN = 10  # terms of a text: a few words are none
FEWEST_TEXTS = 3  # with a term
MOST_TERMS = 12_000
CAUSE_STRENGTH, GATE_STRENGTH = 10.0, 3.0  # inverse, of the regularisation
MISSING = "the lines that the programs printed: the job's log, the kernel log, stacks or dumps"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A labelled text. ``label``: the cause that it teaches, if it decides one; ``accepted``: the causes that are right."""

    path: Path
    text: str
    label: str | None
    accepted: frozenset[str]
    decidable: bool
    negative: bool


@dataclass(slots=True)
class Counts:
    """How the texts of a set were answered."""

    decidable: int = 0
    right: int = 0
    wrong: int = 0
    always_commonest: int = 0  # right, were each answered with the commonest cause of the other sets
    answered_so: int = 0  # of those that were answered, the same
    negative: int = 0
    negative_answered: int = 0
    undecidable: int = 0
    undecidable_answered: int = 0
    by_cause: dict[str, list[int]] = field(default_factory=dict)  # right, answered


def read_sets(folder: Path) -> dict[str, list[Excerpt]]:
    """Return the labelled texts of each set."""
    return {path.parent.name: _read(path) for path in sorted(folder.glob("*/truth.jsonl"))}


def _read(path: Path) -> list[Excerpt]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [_excerpt(path.parent, row) for row in rows]


def _excerpt(folder: Path, row: Mapping[str, Any]) -> Excerpt:
    causes = list(dict.fromkeys(cause for word in row["cause"] for cause in MEANS.get(word, ())))
    also = {cause for word in row.get("also") or () for cause in MEANS.get(word, ())}
    decidable = bool(row["decidable"] and causes)
    label = causes[0] if decidable else None
    path = folder / row["file"]
    text = path.read_text(encoding="utf-8", errors="replace")
    return Excerpt(path, text, label, frozenset({*causes, *also}), decidable, bool(row.get("negative")))


def learned(excerpts: Sequence[Excerpt]) -> dict[str, Any]:
    """Return the table of a classifier of these texts."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.feature_selection import chi2
    from sklearn.preprocessing import normalize

    counter = CountVectorizer(analyzer=terms_of, min_df=FEWEST_TEXTS, binary=True)
    held = counter.fit_transform([one.text for one in excerpts]).astype(float)
    telling = np.nan_to_num(chi2(held, [one.label or ("harmless" if one.negative else "open") for one in excerpts])[0])
    kept = np.sort(np.argsort(-telling, kind="stable")[:MOST_TERMS])
    held = held[:, kept]
    rarity = np.log((1 + held.shape[0]) / (1 + np.asarray(held.sum(axis=0)).ravel())) + 1
    held = normalize(held.multiply(rarity).tocsr())
    decides = np.array([one.label is not None for one in excerpts])
    labels = [one.label for one in excerpts if one.label]
    counts = Counter(labels)
    # Weighed as people post them, the rare causes drown; weighed alike, they are guessed: half way.
    weights = {name: (len(labels) / len(counts) / count) ** 0.5 for name, count in counts.items()}
    causes = _model(held[decides], labels, CAUSE_STRENGTH, weights)
    gates = (
        _model(held, decides, GATE_STRENGTH, "balanced"),
        _model(held, [one.negative for one in excerpts], GATE_STRENGTH, "balanced"),
    )
    columns = np.vstack([model.coef_ for model in (causes, *gates)]) * rarity
    names = counter.get_feature_names_out()[kept]
    rows = [
        f"{name}\t{' '.join(str(round(100 * value)) for value in (rare, *column))}"
        for name, rare, column in zip(names, rarity, columns.T, strict=True)
    ]
    return {
        "causes": list(map(str, causes.classes_)),
        "intercepts": [round(float(value), 3) for model in (causes, *gates) for value in model.intercept_],
        "terms": "\n".join(rows),
    }


def _model(held: Any, labels: Any, strength: float, weight: str | Mapping[str, float]) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=3000, class_weight=weight).fit(held, labels)


def answered(sets: Mapping[str, Sequence[Excerpt]], name: str) -> Counts:
    """Return how a set is answered by what the others teach."""
    others = [one for other, excerpts in sets.items() if other != name for one in excerpts]
    classifier = Classifier.of(learned(others))
    commonest = Counter(one.label for one in others if one.label).most_common(1)[0][0]
    counts = Counts()
    for one in sets[name]:
        cause, probability = classifier.answer(one.text)
        says = (
            may_report(one.text)
            and probability >= THRESHOLD
            and cause in SAID
            and len(classifier.known(one.text)) >= FEWEST_KNOWN
        )
        _count(counts, one, cause if says else None, commonest)
    return counts


def _count(counts: Counts, one: Excerpt, answer: str | None, commonest: str) -> None:
    if not one.decidable:
        kind = "negative" if one.negative else "undecidable"
        setattr(counts, kind, getattr(counts, kind) + 1)
        setattr(counts, f"{kind}_answered", getattr(counts, f"{kind}_answered") + (answer is not None))
        return
    counts.decidable += 1
    counts.always_commonest += commonest in one.accepted
    if answer is None:
        return
    right = answer in one.accepted
    counts.right += right
    counts.wrong += not right
    counts.answered_so += commonest in one.accepted
    row = counts.by_cause.setdefault(answer, [0, 0])
    row[0] += right
    row[1] += 1


def write(table: Mapping[str, Any], texts: int) -> None:
    """Write the table that judging reads."""
    head = f"""\
# The cause that texts with these words have, where no rule decides: made by `python -m tests.acceptance.text_class`.
# A row: a term, its inverse document frequency, and that times its weight for each cause, for that the text decides one, and
# for that it reports no failure, in hundredths.
source = "labelled excerpts of public threads about failing, slow and harmless jobs, which are no part of this project"
date = {datetime.now(UTC).date()}
excerpts = {texts}
threshold = {THRESHOLD}
fewest_terms = {FEWEST_KNOWN}
missing = {json.dumps(MISSING)}
causes = {json.dumps(table["causes"])}
intercepts = {table["intercepts"]}
"""
    TABLE.write_text(f"{head}terms = '''\n{table['terms']}\n'''\n", encoding="utf-8")


def main() -> int:
    """Answer each set by the others, write what was counted, and learn the table; 1 where a fixed answer does as well."""
    parser = argparse.ArgumentParser(
        description="Learn causes from the words of texts, and measure it on sets left out."
    )
    parser.add_argument("--smallest", action="store_true", help="one set left out; written to out/, and no table")
    smallest = parser.parse_args().smallest
    folder = os.environ.get(FOLDER)
    if not folder:
        print(f"skipped: {FOLDER} is not set, no labelled texts on this machine")
        return 0
    sets = read_sets(Path(folder))
    counted = {name: answered(sets, name) for name in list(sets)[: 1 if smallest else len(sets)]}
    total = {
        name: sum(getattr(one, name) for one in counted.values()) for name in Counts.__slots__ if name != "by_cause"
    }
    causes: dict[str, list[int]] = {}
    for one in counted.values():
        for cause, (right, answers) in one.by_cause.items():
            row = causes.setdefault(cause, [0, 0])
            row[0], row[1] = row[0] + right, row[1] + answers
    texts = sum(map(len, sets.values()))
    document = {
        **provenance("python -m tests.acceptance.text_class"),
        "texts": texts,
        "threshold": THRESHOLD,
        "total": total,
        "right_of_answered_by_cause": dict(sorted(causes.items())),
        "sets": {name: [one.right, one.wrong, one.decidable] for name, one in counted.items()},
    }
    path = REPOSITORY / ("out" if smallest else "docs/measured") / "text_class.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
    if not smallest:
        write(learned([one for excerpts in sets.values() for one in excerpts]), texts)
    # The control: the commonest cause as a fixed answer to the same texts.
    return int(total["right"] <= total["answered_so"])


if __name__ == "__main__":
    sys.exit(main())
