"""The task: the sum of two numbers below six, of which the second comes from a tool. A digit that is right is worth a half."""

from __future__ import annotations

from random import Random

SYMBOLS = "0123456789+="
START = len(SYMBOLS)  # a token of its own, before every prompt
VOCABULARY = START + 1
BELOW = 6
PROMPT_TOKENS, ANSWER_TOKENS = 5, 2


def question(number: int) -> tuple[int, int]:
    """Return the two numbers of the question with this number: the same ones whenever it is asked."""
    random = Random(number)  # noqa: S311 (no secret)
    return random.randrange(BELOW), random.randrange(BELOW)


def prompt(left: int, right: int) -> list[int]:
    """Return a question's tokens: ``<start>4+3=``."""
    return [START, *(SYMBOLS.index(symbol) for symbol in f"{left}+{right}=")]


def reward(tokens: list[int], answer: list[int]) -> float:
    """Return what an answer to a prompt is worth, 0 to 1."""
    left, right = tokens[1], tokens[3]
    wanted = [SYMBOLS.index(symbol) for symbol in f"{left + right:02d}"]
    return sum(given == one for given, one in zip(answer, wanted, strict=True)) / ANSWER_TOKENS
