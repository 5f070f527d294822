"""A port that is down, or slower than it was or than the same port of other nodes: a cable, a module, or its far end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from analyzers.diagnosis.gray.names import RATE, STATE
from analyzers.diagnosis.gray.readings import Floats
from analyzers.diagnosis.gray.signs import FEWEST_PEERS, LIKELY, Sign
from analyzers.diagnosis.gray.under_load import FEWEST, Subject

ACTIVE = 4  # as the kernel numbers the states of a port


def port_signs(ports: Sequence[Subject]) -> Iterator[Sign]:
    """Yield the signs of ports. Peers are the ports of the same name on other nodes: a node may have some for other duties."""
    by_name: dict[str, list[Subject]] = defaultdict(list)
    for port in ports:
        by_name[port.read.id].append(port)
    for name, alike in sorted(by_name.items()):
        rates = np.array([_newest(port, RATE) for port in alike])
        active = np.array([_newest(port, STATE) == ACTIVE for port in alike])
        known = rates[active & np.isfinite(rates)]
        usual = float(np.median(known)) if len(known) > FEWEST_PEERS else np.nan
        most = int(active.sum()) > FEWEST_PEERS
        for port, rate, is_active in zip(alike, rates.tolist(), active.tolist(), strict=True):
            yield from _signs(port, f"{name} ", rate if is_active else None, usual, most=most)


def of_name(kind: str, ports: Sequence[Subject]) -> list[Subject]:
    """Return the ports that a sign of a port is compared with."""
    return [port for port in ports if kind.startswith(f"{port.read.id} ")]


def _signs(port: Subject, name: str, rate: float | None, usual: float, *, most: bool) -> Iterator[Sign]:
    states, rates = (_known(port.read.column(what)) for what in (STATE, RATE))
    decided = len(states) >= FEWEST
    at = float(port.read.ticks[-1]) if len(port.read.ticks) else None
    if rate is None:
        was = bool((states[:-FEWEST] == ACTIVE).any())
        if len(states) and (states[-FEWEST:] != ACTIVE).all() and (most or was):
            text = "it is not active, and was before" if was else "it is not active, and that port of other nodes is"
            yield Sign(f"{name}down", "gray_port", port, LIKELY, text, at, alone=was, decided=decided, of_node=False)
        return
    before = float(rates[:-FEWEST].max(initial=0.0))
    expected = max(before, usual if np.isfinite(usual) else 0.0)
    if rate < expected:
        text = f"it runs at {rate / 1000:g} Gb/s, and {'ran' if before > rate else 'others run'} at {expected / 1000:g}"
        alone = before > rate
        yield Sign(f"{name}rate", "gray_port", port, LIKELY, text, at, alone=alone, decided=decided, of_node=False)


def _newest(port: Subject, name: str) -> float:
    values = _known(port.read.column(name))[-FEWEST:]
    return float(np.sort(values)[(len(values) - 1) // 2]) if len(values) else np.nan


def _known(values: Floats) -> Floats:
    return values[np.isfinite(values)]
