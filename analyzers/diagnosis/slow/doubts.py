"""Why a worker that takes longer than its peers is not shown to be a slow machine."""

from __future__ import annotations

import numpy as np

from analyzers.diagnosis.slow.claim import node_of
from analyzers.diagnosis.slow.grouping import grouped_median, numbered
from analyzers.diagnosis.slow.levels import LASTING, LEAST_NOISE, SHORTEST, median_of_known, spreads, turn
from analyzers.diagnosis.slow.op_table import COMMUNICATION, COMPUTE, OTHER, OpTable, kind_of, words_of
from analyzers.diagnosis.slow.outliers import LEAST
from analyzers.diagnosis.slow.situation import SlowSituation
from analyzers.diagnosis.slow.transfers import BACKWARD, FORWARD, direction_of, is_transfer

TOKENS_OF_EXPERTS = "how many tokens the experts of each rank get, or clocks, power and temperature of its machine"
EXCHANGES = ("all-to-all", "all_to_all", "alltoall", "all2all", "a2a", "dispatch", "deepep", "deep_ep")
EXPERTS = tuple(
    map(frozenset, (("moe",), ("expert",), ("experts",), ("router",), ("grouped", "gemm"), ("grouped", "mm")))
)
# Parts of which as many tokens cost as much, whatever they are, by the words of their names.
BY_TOKENS = frozenset(("head", "norm", "layernorm", "rmsnorm", "qkv"))
# Where ranks exchange nothing, by which experts, or tables of embeddings, may get more.
DENSE, OPTIMIZER = frozenset(("mlp", "ffn", "linear", "embedding", "embeddings")), frozenset(("optimizer",))
PLAIN = frozenset(
    ("forward", "backward", "fwd", "bwd", "step", "layer", "lm", "proj", "rms", "input", "final", "token", "word")
)
PART = 0.25  # an operation that shows less than this part of a worker's excess does not share it
ALIKE = 0.15  # of the excess, by which that of workers with a shared cause differs at most
UNEVEN = 1.05  # what microbatches of unlike lengths cost, for their lengths to be in doubt
WORK_OF_EACH = "how much work each operation had: a column `tokens`"
GROWTH = "attention's grows with its square, and what is fixed with none"
WORK_ALIKE = "how long a peer takes for as much work, or the lengths of the sequences"
ITS_STAGE = "the stage of each rank: a column `stage`"
OF_DOCUMENTS = 0.03  # by which microbatches of as much work differ, for their documents to be unlike
MOST_PEERS = 32  # that are compared for it
UNSTEADY = 3.0  # times the usual spread of workers in a step: one of warm-up, or of another load
GAPS = 2  # times as many steps as between two in which it was slow: it is over
NOTICED = 0.1  # of a worker's computation: shorter operations do not count


def doubt(seen: SlowSituation, number: int) -> tuple[str, str] | None:
    """Return what else may make a worker slow, and what would decide; None where nothing speaks against its machine."""
    if not alike(seen) and seen.table.workers[number].pp < 0:
        return "the trace has transfers, or forwards ahead, as stages have, and no column of stages", ITS_STAGE
    if (found := _is_over(seen, number) or _of_unlike_work(seen, number)) is not None:
        return found
    shared = float(seen.levels.shared[number])
    if shared > max(LEAST, PART * float(seen.outliers.excess[number])):
        text = "all stages of its replica take longer than those of the others"
        return text, "how much work this replica gets (a column `tokens`), or clocks of its machines"
    if _lengths_differ(seen, number):
        text = "microbatches differ in length, and no other stage of its replica shows whether it got the longer ones"
        return text, "how much work each microbatch had: a column `tokens`"
    # A column of tokens may count them before the exchange, where all ranks have as many.
    if (of := _has_experts(seen)) and not is_longer_by_tokens(seen, number):
        return f"{of}, and its experts may get more tokens", TOKENS_OF_EXPERTS
    if _unsteady(seen, number):
        text = "only in steps in which all workers differ more than usual, as after a restart"
        return text, "more steps in which the others are steady"
    longer, usual = operations(seen, number)
    if longer and usual:
        text = f"only in {', '.join(longer)}, and not in {', '.join(usual)}"
        return text, "how much work each operation had (a column `tokens`), and whether this rank alone does it"
    return None


def _is_over(seen: SlowSituation, number: int) -> tuple[str, str] | None:
    """Return that a worker is no longer slow in the newest steps, which are more than it was sound for in between."""
    by_step = seen.levels.by_step[number] - seen.levels.shared[number]
    known = np.flatnonzero(np.isfinite(by_step))
    known = known[known >= seen.outliers.changed_at[number]]
    if len(known) < 2 * SHORTEST:
        return None
    slow = by_step[known] > seen.outliers.excess[number] / 2
    at = int(turn(-by_step[known][None])[0])
    gap = int(np.max(np.diff(np.flatnonzero(slow[:at])), initial=1)) - 1
    if float(slow[:at].mean()) < LASTING or float(slow[at:].mean()) > 1 - LASTING or len(slow) - at <= GAPS * gap:
        return None
    first, last, sound = (int(seen.table.steps[known[place]]) for place in (0, at - 1, at))
    return f"in steps {first}-{last}, and no longer since step {sound}", "more steps: whether it becomes slow again"


def _of_unlike_work(seen: SlowSituation, number: int) -> tuple[str, str] | None:
    """Return that a worker's one peer does not show how much work it has, or that it has as much in other portions."""
    if int(seen.levels.peers[number]) == 2 and not seen.whole_batches and not of_known_work(seen, number):
        return "one peer only shows it, and nothing of the trace how much work each had", WORK_OF_EACH
    own, usual = _operations_a_step(seen, number)
    excess = float(seen.outliers.excess[number])
    if (1 - PART) * excess < abs(np.log(times := work_times(seen, number))):
        more = f"{times:.3g} times as much work" if times > 1 else f"{times:.0%} of the work"
        return f"it has {more} in an operation, and time does not always grow in proportion: {GROWTH}", WORK_ALIKE
    if own > 0 and usual > 0 and excess + np.log(own / usual) < PART * excess:
        return (
            f"it runs {own:.3g} operations a step, its peers {usual:.3g}: as much work in other portions",
            WORK_OF_EACH,
        )
    return None


def work_times(seen: SlowSituation, number: int) -> float:
    """Return how many times as much work as its peers' a worker's operations have; 1 where that is not known."""
    table = seen.compute
    known = np.isfinite(table.work)
    mine = known & (table.worker == number)
    others = known & (seen.levels.duty[table.worker] == seen.levels.duty[number]) & (table.worker != number)
    ratios = [
        float(np.median(table.work[mine & of]) / np.median(table.work[others & of]))
        for code in np.unique(table.operation[mine]).tolist()
        if (others & (of := table.operation == code)).any()
    ]
    return float(np.median(ratios)) if ratios else 1.0


def _operations_a_step(seen: SlowSituation, number: int) -> tuple[float, float]:
    """Return how many operations a worker runs in its usual step, and how many its usual peer does."""
    table, count = seen.compute, len(seen.compute.workers)
    each = np.bincount(table.worker * len(table.steps) + table.step, minlength=count * len(table.steps))
    by_step = each.reshape(count, len(table.steps)).astype(np.float64)
    usual = median_of_known(np.where(by_step > 0, by_step, np.nan), axis=1)
    peers = (seen.levels.duty == seen.levels.duty[number]) & np.isfinite(usual)
    peers[number] = False
    return float(usual[number]), float(np.median(usual[peers])) if peers.any() else 0.0


def _unsteady(seen: SlowSituation, number: int) -> bool:
    """Whether a worker is as its peers in most of the steps in which workers differ no more than they usually do."""
    by_step = seen.levels.by_step - seen.levels.shared[:, None]
    wide = spreads(by_step.T, np.isfinite(by_step).T)
    known = np.isfinite(by_step[number]) & (np.arange(by_step.shape[1]) >= seen.outliers.changed_at[number])
    ordinary = known & (wide <= UNSTEADY * max(float(np.nanmedian(wide)), LEAST_NOISE))
    longer = ordinary & (by_step[number] > seen.outliers.excess[number] / 2)
    return bool((known & ~ordinary).any() and 2 * np.count_nonzero(longer) <= np.count_nonzero(ordinary))


def _lengths_differ(seen: SlowSituation, number: int) -> bool:
    """Whether long microbatches may be all that a worker suffers from: it is alone in its replica, and was so from the start."""
    if seen.costs is None or seen.costs.data < UNEVEN or seen.outliers.changed_at[number] >= 0:
        return False
    return not of_known_work(seen, number)


def of_known_work(seen: SlowSituation, number: int) -> bool:
    """Whether the trace shows how much work a worker had: by tokens, or by another stage that ran the same microbatches."""
    table = seen.compute
    if np.isfinite(table.work[table.worker == number]).any() and not _is_more_than_work(seen, number):
        return True
    return has_other_stage(seen, number)


def has_other_stage(seen: SlowSituation, number: int) -> bool:
    """Whether the trace has another stage of a worker's replica, which ran the same microbatches."""
    worker, table = seen.table.workers[number], seen.compute
    computing = [seen.table.workers[one] for one in np.unique(table.worker).tolist()]
    return worker.dp >= 0 and len({one.pp for one in computing if one.dp == worker.dp}) > 1


def _is_more_than_work(seen: SlowSituation, number: int) -> bool:
    """Whether microbatches of as much work take unlike times, in all their operations alike: their documents are unlike."""
    table, levels = seen.compute, seen.levels
    peers = np.flatnonzero((levels.duty == levels.duty[number]) & (np.arange(len(levels.duty)) != number))[:MOST_PEERS]
    mine = np.flatnonzero(np.isin(table.worker, peers) & (table.microbatch >= 0))
    rest = np.log(table.per_work[mine]) - levels.usual[levels.cell[mine]] - levels.step_level[table.step[mine]]
    rest -= np.nan_to_num(levels.by_step[table.worker[mine], table.step[mine]])
    batch = numbered(table.place[mine] * (int(table.microbatch.max(initial=0)) + 1) + table.microbatch[mine])[1]
    if not len(batch) or 2 * (int(batch.max()) + 1) > len(batch):  # most have one operation
        return False
    count = np.bincount(batch)
    mean = np.bincount(batch, rest) / count
    within = float(np.var(rest - mean[batch])) * len(rest) / max(len(rest) - len(count), 1)
    between = float(np.var(mean)) - within / float(count.mean())
    return between > max(OF_DOCUMENTS**2, within)


def _has_experts(seen: SlowSituation) -> str:
    """Return what shows that experts get unlike numbers of tokens: an exchange, or operations of experts; "" for nothing."""
    names = [seen.table.operations[code] for code in np.unique(seen.table.operation).tolist()]
    if any(word in name.lower() for name in names for word in EXCHANGES):
        return "the ranks exchange tokens"
    own = next((name for name in names if _is_of_experts(name)), "")
    return f"there are operations of experts ({own})" if own else ""


def _is_of_experts(name: str) -> bool:
    """Whether an operation is of experts by whole words of its name; reductions and the optimizer have names of their own."""
    if kind_of(name) not in (COMPUTE, OTHER) and not name.startswith("comm-"):  # which is a trace's of kernels
        return False
    words = words_of(name)
    return any(words >= each for each in EXPERTS) and not words & OPTIMIZER


def is_longer_by_tokens(seen: SlowSituation, number: int) -> bool:
    """Whether what costs as much for as many tokens, without documents, images or experts, is longer by the same factor.

    That is longer than every peer's, by about the worker's excess in all. A name with any other word may be of a part that
    tokens do not fix.
    """
    kinds = (BY_TOKENS,) if _has_experts(seen) else (BY_TOKENS, DENSE, OPTIMIZER)
    words = [words_of(name) for name in seen.table.operations]
    named = [any(of & kind and of <= kind | PLAIN for kind in kinds) for of in words]
    peers = np.flatnonzero((seen.levels.duty == seen.levels.duty[number]) & np.isfinite(seen.levels.level))
    rows = np.array(named, np.bool_)[seen.table.operation] & (seen.table.kind == COMPUTE)
    rows &= seen.table.step >= max(int(seen.outliers.changed_at[number]), 0)
    own = seen.table.rows(rows & np.isin(seen.table.worker, peers))
    if not len(own.seconds):
        return False
    codes, code = numbered(own.operation)
    cells = len(codes) * len(own.workers)
    usual = grouped_median(own.seconds, own.worker * len(codes) + code, cells).reshape(-1, len(codes))
    seconds = (usual * np.bincount(code)).sum(axis=1)  # an operation counts as much as the time that it takes
    longer = np.log(seconds[number] / seconds[peers[peers != number]])  # NaN where one has none of an operation
    excess = float(seen.outliers.excess[number])
    return bool(longer.min(initial=np.inf) > 0 and abs(np.median(longer) - excess) <= PART * excess)


def alike(seen: SlowSituation) -> bool:
    """Whether neither a transfer nor the order of operations shows that workers have stages that the trace does not name."""
    codes = np.unique(seen.table.operation).tolist()
    return not any(is_transfer(seen.table.operations[code]) for code in codes) and not _run_ahead(seen.compute)


def _run_ahead(table: OpTable) -> bool:
    """Whether workers run unlike numbers of forwards before a step's first backward, as stages do, in steps without lost rows."""
    if not table.has_starts:
        return False
    ways, places = [direction_of(name) for name in table.operations], len(table.workers) * len(table.steps)
    backward, forward = (
        np.array([one == way for one in ways], np.bool_)[table.operation] for way in (BACKWARD, FORWARD)
    )
    at, first = np.arange(len(table.place)), np.full(places, -1)
    np.maximum.at(first, table.place[backward], len(at) - at[backward])
    ahead = np.bincount(table.place[forward & (len(at) - at > first[table.place])], minlength=places)
    count = np.bincount(table.place, minlength=places)
    known = (first > 0) & (count == count.max(initial=0))
    shown = np.where(known, ahead, np.nan).reshape(len(table.workers), -1)
    return bool(np.ptp((each := median_of_known(shown, axis=1))[np.isfinite(each)]) >= 1) if known.any() else False


def of_one_kind(seen: SlowSituation, slow: list[int]) -> bool:
    """Whether slow workers of several machines are so by the same factor and since the same step: by what they share."""
    if not several(seen, slow):
        return False
    excess, since = seen.outliers.excess[slow], seen.outliers.changed_at[slow]
    near = max(ALIKE * float(np.median(excess)), 6 * float(np.max(seen.levels.noise[slow])))
    return float(np.ptp(excess)) < near and int(np.ptp(since)) <= 1


def several(seen: SlowSituation, slow: list[int]) -> bool:
    """Whether workers are not known to be of one machine."""
    nodes = {node_of(seen, number) for number in slow}
    return len(slow) > 1 and (len(nodes) > 1 or None in nodes)


def compared(seen: SlowSituation, number: int) -> bool:
    """Whether a stage, a replica or a collective shows that a worker's peers have the same duty."""
    worker = seen.table.workers[number]
    return worker.pp >= 0 or worker.dp >= 0 or bool((seen.table.kind == COMMUNICATION).any())


def operations(seen: SlowSituation, number: int) -> tuple[list[str], list[str]]:
    """Return the operations in which a worker takes longer than its peers, and those in which it does not."""
    table, levels = seen.compute, seen.levels
    mine = (table.worker == number) & (table.step >= max(int(seen.outliers.changed_at[number]), 0))
    seconds, cell = table.seconds[mine], levels.cell[mine]
    rest = np.log(table.per_work[mine]) - levels.usual[cell] - levels.step_level[table.step[mine]]
    longer: list[str] = []
    usual: list[str] = []
    for code in np.unique(table.operation[mine]).tolist():
        own = table.operation[mine] == code
        if float(seconds[own].sum()) < NOTICED * float(seconds.sum()):
            continue
        part = usual if float(np.median(rest[own])) < PART * float(seen.outliers.excess[number]) else longer
        part.append(table.operations[code])
    return longer, usual
