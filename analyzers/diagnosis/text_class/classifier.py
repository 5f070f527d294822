"""Three linear models of texts by the words, and pairs of neighbouring words, that they hold.

The first says which cause a failure with these words has, the second whether the text decides a cause, the third whether it
reports no failure at all. A cause is as probable as the first two say it is, times that the third is wrong. A text's terms weigh
by how rare they are (inverse document frequency) and are scaled to length 1, so that a long text does not count for more.
scikit-learn's logistic regression learns the weights; judging adds them up and imports none of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

MOST_CHARACTERS = 6000
LONGEST_WORD = 24
_JOINED = re.compile(r"([a-z])([A-Z])")
_WORD = re.compile(r"[A-Za-z][A-Za-z]+|[\u4e00-\u9fff]{2}")


def terms_of(text: str) -> list[str]:
    """Return the different words of a text, then its pairs of neighbouring words, in their order; numbers are left out."""
    apart = _JOINED.sub(r"\1 \2", text[:MOST_CHARACTERS])
    words = [word.lower() for word in _WORD.findall(apart) if len(word) <= LONGEST_WORD]
    pairs = (f"{left} {right}" for left, right in pairwise(words))
    return list(dict.fromkeys([*words, *pairs]))


GATES = ("decides", "harmless")
"""The second and the third model; their columns of the table come after those of the causes."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """``weights``: term → its inverse document frequency, and that times its weight for each cause and each gate."""

    causes: tuple[str, ...]
    intercepts: tuple[float, ...]
    weights: Mapping[str, tuple[float, ...]]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Classifier:
        """Read the table of ``texts.toml``; ValueError: a row or the intercepts have not one number for each cause and gate."""
        causes, intercepts = tuple(map(str, table["causes"])), tuple(map(float, table["intercepts"]))
        weights, columns = _weights(str(table["terms"])), len(causes) + len(GATES)
        if not causes or len(intercepts) != columns or not all(map(math.isfinite, intercepts)):
            raise ValueError("texts.toml: intercepts must be one finite number for each of the causes and two more")
        if wrong := next((term for term, row in weights.items() if len(row) != 1 + columns or row[0] <= 0), None):
            raise ValueError(
                f"texts.toml: the row of {wrong!r} must have its rarity, a number for each of the causes and two more"
            )
        return cls(causes, intercepts, weights)

    def answer(self, text: str) -> tuple[str, float]:
        """Return the most probable cause and its probability; that is 0 for a text without known terms."""
        scores = self._scores(text)
        if not scores:
            return self.causes[0], 0.0
        *causes, decides, harmless = scores
        most = max(causes)
        probability = 1.0 / sum(math.exp(score - most) for score in causes)
        return self.causes[causes.index(most)], probability * _chance(decides) * _chance(-harmless)

    def _scores(self, text: str) -> list[float]:
        known = [self.weights[term] for term in self.known(text)]
        if not known:
            return []
        length = math.sqrt(sum(weights[0] ** 2 for weights in known))
        return [
            intercept + sum(weights[1 + number] for weights in known) / length
            for number, intercept in enumerate(self.intercepts)
        ]

    def telling(self, text: str, name: str) -> list[str]:
        """Return the terms of a text that speak for a cause, the most telling first; none that a shown pair holds."""
        number = 1 + self.causes.index(name)
        mine = [term for term in self.known(text) if self.weights[term][number] > 0]
        return _apart(sorted(mine, key=lambda term: -self.weights[term][number]))

    def known(self, text: str) -> list[str]:
        """Return the terms of a text that the table has."""
        return [term for term in terms_of(text) if term in self.weights]


def _chance(score: float) -> float:
    """The logistic function; a site's table may hold numbers that a float's exponent does not."""
    return 1.0 / (1.0 + math.exp(min(-score, 700.0)))


def _apart(terms: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for term in terms:
        if not any(term in one or one in term for one in kept):
            kept.append(term)
    return kept


@lru_cache(maxsize=4)
def _weights(rows: str) -> Mapping[str, tuple[float, ...]]:
    """Read rows of a term, a tab and its numbers, in hundredths."""
    found = {}
    for row in rows.strip().splitlines():
        term, _, numbers = row.partition("\t")
        found[term] = tuple(int(number) / 100 for number in numbers.split())
    return found
