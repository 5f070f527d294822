"""Steps as fairseq prints them, by its names of them: ``loss=9.8, wps=12000, ups=0.5, num_updates=100``, or the same as JSON.

``ups`` and ``wps``, updates and words a second, are means since the line before. Validations and whole epochs have other names.
"""

from __future__ import annotations

import re

WORD = "num_updates"
_IS = r'(?:=|": "?)'
_NUMBER = r"([-+]?\d{1,12}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,4})?|nan|inf)"
_UPDATE = re.compile(rf"\bnum_updates{_IS}(\d{{1,18}})\b")
_FIELD = re.compile(rf"\b(loss|gnorm|ups|wps){_IS}{_NUMBER}")
_NAMES = {"loss": "loss", "gnorm": "gradient_norm", "wps": "tokens_per_second"}


def report(text: str) -> tuple[str, str, dict[str, float]] | None:
    """Return the layout, the number of the step and its values; None for another line."""
    found = _UPDATE.search(text) if WORD in text else None
    if found is None:
        return None
    given = {field[1]: float(field[2]) for field in _FIELD.finditer(text)}
    values = {_NAMES[name]: value for name, value in given.items() if name in _NAMES}
    if (updates := given.get("ups", 0.0)) > 0:
        values["seconds"] = 1 / updates
    return ("fairseq", found[1], values) if "loss" in values else None
