"""What the kubelet's message of an eviction says of the container: whether it used more than it asked for.

Formats: ``containerMessageFmt``, ``podMessageFmt`` and the texts of limits in ``pkg/kubelet/eviction/helpers.go`` of Kubernetes
1.18 to 1.33; quantities as ``k8s.io/apimachinery/pkg/api/resource`` writes them.
"""

from __future__ import annotations

import re

_USED = re.compile(
    r"was using (\S{1,24}?),? (?:request is|which exceeds its request of) (\S{1,24}?)(?=[.,]?(?:\s|['\"]|$))"
)
_QUANTITY = re.compile(r"(\d{1,30}(?:\.\d{1,9})?)(m|[kMGTPE]|[KMGTPE]i)?")
_LETTERS = "KMGTPE"
LITTLE = 2.0**30
"""Bytes. A container that asked for nothing uses more than it asked for, and with no more than this it filled no node."""


def used_more(message: str) -> bool:
    """Whether a container of the pod used more than it asked for; a message without such numbers is of a limit that it passed."""
    pairs = _USED.findall(message)
    if not pairs:
        return "was using" not in message
    numbers = [(_number(used), _number(asked)) for used, asked in pairs]
    return any(used is not None and asked is not None and used > (asked or LITTLE) for used, asked in numbers)


def _number(text: str) -> float | None:
    """Return a quantity such as ``20Ki``, ``1500m`` or ``3G``; None for what is none."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, unit = float(found[1]), found[2] or ""
    if unit in {"", "m"}:
        return number / 1000 if unit else number
    return float(number * (1024 if unit.endswith("i") else 1000) ** (_LETTERS.index(unit[0].upper()) + 1))
