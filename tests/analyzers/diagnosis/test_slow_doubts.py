"""Workers that stand out in a trace and whose machine is not shown to be slow; and slowness that no worker stands out by."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from analyzers.diagnosis.slow.op_table import COMMUNICATION, kind_of
from simulation.traces.op_traces import OpJob, long_documents
from tests.analyzers.diagnosis.test_slow import Slow, named_nobody, ranks
from tests.support.op_traces import Table, judged, simulated

UNEVEN = (1, 1, 1, 1.5)


def _without(table: Table, *names: str) -> Table:
    unset = {name: np.full(len(table), np.nan if name == "started" else -1) for name in names}
    return table.changed(**unset)


@pytest.mark.parametrize("more", [(), ("started",)], ids=str)
@pytest.mark.parametrize("replicas", [1, 2])
def test_without_a_column_of_stages_a_long_stage_is_no_slow_machine(replicas: int, more: tuple[str, ...]) -> None:
    """Transfers show that there are stages; nothing shows who has the same duty."""
    table = simulated(OpJob(stages=8, replicas=replicas, splits=(*[1] * 7, 1.5)))
    verdict = _without(table, "pp", "dp", *more).verdict()
    assert named_nobody(verdict)
    assert verdict.symptom != "healthy"


@pytest.mark.parametrize(("stages", "replicas", "splits"), [
    (4, 1, (1, 1, 1, 1.35)), (4, 1, (1.35, 1, 1, 1)), (4, 1, (1, 1.35, 1, 1)), (8, 1, (*[1] * 7, 1.3)), (2, 4, (1, 1.35)),
])  # fmt: skip
@pytest.mark.parametrize("all_rows", [True, False])
def test_stages_show_by_their_order_where_neither_column_nor_transfer_names_them(
    stages: int, replicas: int, splits: tuple[float, ...], all_rows: bool
) -> None:
    """Each runs as many forwards ahead as stages come after it. A long one is no machine."""
    table = simulated(OpJob(stages=stages, replicas=replicas, splits=splits))
    table = table.kept(np.flatnonzero(~table.named("send", "recv") if all_rows else table.named("compute")))
    verdict = _without(table, "pp", "dp").verdict()
    assert named_nobody(verdict)
    assert verdict.symptom != "healthy"


@pytest.mark.parametrize(("rank", "at_an_end"), [(0, True), (5, False), (7, True)])
def test_the_first_and_the_last_rank_are_less_sure_without_stages(rank: int, at_an_end: bool) -> None:
    """They may have an embedding or a loss, or write the log."""
    job = OpJob(stages=1, replicas=8, worker=lambda _, replica, __: 1.4 if replica == rank else 1.0)
    verdict = _without(simulated(job), "pp", "dp").verdict()
    assert (ranks(verdict), verdict.action.kind) == ([rank], "probe")
    assert ("first and the last rank" in verdict.culprits[0].why) == at_an_end


def test_ranks_of_which_nothing_shows_the_same_duty_are_not_evicted() -> None:
    """Computations alone, without stages, replicas or a collective."""
    table = simulated(OpJob(stages=8, replicas=1, splits=(*[1] * 7, 1.5)))
    verdict = _without(table.kept(table.named("compute")), "pp", "dp", "started").verdict()
    assert verdict.action.kind != "evict"


@pytest.mark.parametrize("slow", [4, 8])
def test_several_workers_at_once_are_not_latent(slow: int) -> None:
    """None of them alone would make the job faster, and the job waits for them all."""
    job = OpJob(stages=1, replicas=32, microbatches=4, worker=lambda _, replica, __: 1.4 if replica < slow else 1.0)
    verdict = simulated(job).verdict()
    assert verdict.symptom == "slow"
    assert "does not wait" not in " ".join(one.text for one in verdict.evidence)


def test_what_is_longer_in_one_operation_only_is_not_shown_to_be_the_machine() -> None:
    """A hot expert, or a rank that logs."""
    table = simulated(OpJob(stages=1, replicas=8))
    longer = (table.columns["rank"] == 3) & table.named("forward-compute")
    seconds = np.where(longer, table.columns["duration"] * 2, table.columns["duration"])
    verdict = table.changed(duration=seconds).verdict()
    assert named_nobody(verdict)
    assert verdict.abstained
    assert "forward-compute" in " ".join(one.text for one in verdict.evidence)


def test_a_replica_whose_stages_are_all_longer_has_more_work_or_not() -> None:
    """Long documents cost a stage with a loss, which is linear in their length, less than one with attention alone."""
    job = OpJob(stages=2, replicas=8, worker=lambda stage, replica, _: 1.0 if replica else (1.5, 1.2)[stage])
    verdict = simulated(job).verdict()
    assert named_nobody(verdict)
    assert verdict.symptom == "slow"


@pytest.mark.parametrize("stage", [None, 3], ids=["all", "stage 3"])
def test_what_begins_in_all_peers_at_once_is_neither_healthy_nor_the_split(stage: int | None) -> None:
    """An uneven split is so from the first step on, and nobody is as fast as before."""
    job = OpJob(worker=lambda own, _, step: 1.6 if step >= 6 and stage in (None, own) else 1.0)
    verdict = simulated(job).verdict()
    assert (verdict.symptom, verdict.abstained) == ("slow", True)
    assert "since step 6" in " ".join(one.text for one in verdict.evidence)
    assert named_nobody(verdict)


def test_steps_that_grow_without_their_computations_are_not_healthy() -> None:
    """Collectives that take long are seen, though not who makes them long."""
    table = simulated(OpJob(stages=1, replicas=8))
    late = table.named("reduce") & (table.columns["step"] >= 6)
    shift = np.maximum(table.columns["step"] - 6, 0) * 5.0
    seconds = np.where(late & table.named("scatter"), table.columns["duration"] + 5.0, table.columns["duration"])
    after = shift + np.where((table.columns["step"] >= 6) & ~table.named("compute", "scatter"), 5.0, 0.0)
    verdict = table.changed(duration=seconds, started=table.columns["started"] + after).verdict()
    assert verdict.symptom == "slow"
    assert verdict.abstained
    assert "since step 6" in " ".join(one.text for one in verdict.evidence)


def test_without_starts_no_cost_is_proven() -> None:
    """The order of operations, by which steps are played again, is not known."""
    assert _without(simulated(OpJob(worker=Slow())), "started").verdict().action.kind == "probe"


@pytest.mark.parametrize(
    "name", ["ncclDevKernel_SendRecv", "forward_isend_irecv", "backward_wait", "fwd_p2p", "bwd_a2a", "forward_all2all"]
)
def test_waits_and_transfers_are_no_computations(name: str) -> None:
    """Whatever else their names say."""
    assert kind_of(name) == COMMUNICATION


def test_a_worker_that_is_slow_beside_a_healthy_replica_is_still_named() -> None:
    """Doubts are for those that have a reason."""
    assert ranks(simulated(OpJob(splits=UNEVEN, worker=Slow(1.5))).verdict()) == [9]


@pytest.mark.parametrize("slow", [2, 4])
@pytest.mark.parametrize("since", [0, 6])
def test_workers_that_are_slow_alike_share_what_no_machine_shows(slow: int, since: int) -> None:
    """A rack that throttles, older devices, the last of a context parallel group."""

    def worker(_: int, replica: int, step: int) -> float:
        return 1.4 if replica < slow and step >= since else 1.0

    verdict = simulated(OpJob(stages=1, replicas=16, microbatches=4, worker=worker)).verdict()
    assert (verdict.symptom, verdict.abstained) == ("slow", True)
    assert named_nobody(verdict)


def test_two_slow_workers_that_differ_are_named_and_not_evicted_at_once() -> None:
    """Each may be slow by itself; both at one time are rather tested."""
    job = OpJob(replicas=8, worker=lambda stage, replica, _: {(1, 1): 1.3, (2, 5): 1.9}.get((stage, replica), 1.0))
    verdict = simulated(job).verdict()
    assert ranks(verdict) == [9, 21]
    assert verdict.action.kind == "probe"


def test_a_stage_that_becomes_slow_late_names_none_of_its_workers() -> None:
    """All its peers became slow with each of them."""
    verdict = simulated(
        OpJob(steps=24, worker=lambda stage, _, step: 1.6 if stage == 3 and step >= 18 else 1.0)
    ).verdict()
    assert (verdict.symptom, verdict.abstained) == ("slow", True)
    assert named_nobody(verdict)


@pytest.mark.parametrize("seed", range(3))
def test_long_documents_on_one_replica_evict_nobody(seed: int) -> None:
    """One replica's share of the data is longer; without its other stages, or tokens, that looks like a slow machine."""

    def longer(_: int, replica: int, __: int) -> float:
        return 1.0 if replica else 1.5

    verdict = simulated(OpJob(stages=1, replicas=8, seed=seed, length=long_documents, worker=longer)).verdict()
    assert verdict.symptom == "slow"
    assert named_nobody(verdict)


@pytest.mark.parametrize("stages", [1, 4])
@pytest.mark.parametrize("sound", [3, 8])
def test_a_worker_that_is_no_longer_slow_is_past(stages: int, sound: int) -> None:
    """It is said in which steps, and neither evicted nor tested; more steps would decide."""
    slow = lambda stage, replica, step: 1.4 if (stage, replica) == (0, 2) and step < 24 - sound else 1.0  # noqa: E731
    verdict = simulated(OpJob(stages=stages, replicas=16 // stages, steps=24, worker=slow)).verdict()
    assert named_nobody(verdict)
    assert f"in steps 0-{23 - sound}, and no longer since step {24 - sound}" in verdict.evidence[0].text
    assert any("slow again" in one.what for one in verdict.missing)


def test_a_worker_that_is_slow_on_and_off_is_not_past() -> None:
    """Three sound steps at the end are as those between."""
    slow = lambda stage, replica, step: 1.4 if (stage, replica) == (0, 2) and step % 12 < 9 else 1.0  # noqa: E731
    verdict = simulated(OpJob(stages=4, replicas=4, steps=24, worker=slow)).verdict()
    assert len(verdict.culprits) == 1


@pytest.mark.parametrize("tokens", [np.nan, 8192.0], ids=["no tokens", "tokens"])
@pytest.mark.parametrize("name", ["all-to-all", "all_to_all", "AllToAll", "ep-a2a", "all2all", "moe-dispatch"])
def test_where_ranks_exchange_tokens_the_experts_of_one_may_get_more(name: str, tokens: float) -> None:
    """However the exchange is spelled, and also where tokens are counted before it, as many on each rank."""
    table = simulated(OpJob(stages=1, replicas=8, worker=lambda _, replica, __: 1.4 if replica == 5 else 1.0))
    strings = tuple(name if "scatter" in one else one for one in table.strings)
    verdict = replace(table, strings=strings).changed(work=np.full(len(table), tokens)).verdict()
    assert named_nobody(verdict)
    assert (verdict.symptom, verdict.abstained) == ("slow", True)


def _of_layers(names: tuple[str, ...], slow: tuple[str, ...], tokens: float = 8192.0) -> Table:
    """Eight replicas whose computations are of these parts; the fifth takes longer in some."""
    table = simulated(OpJob(stages=1, replicas=8, worker=lambda _, replica, __: 1.4 if replica == 5 else 1.0))
    parts, strings = [table.kept(np.flatnonzero(~table.named("compute")))], table.strings
    for way in ("forward", "backward"):
        own = table.kept(np.flatnonzero(table.named(f"{way}-compute")))
        each = own.columns["duration"] / len(names)
        for number, name in enumerate(names):
            seconds = np.where((own.columns["rank"] == 5) & (name not in slow), each / 1.4, each)
            strings = tuple(dict.fromkeys((*strings, f"{way}-{name}")))
            at, code = own.columns["started"] + number * each, np.full(len(own), strings.index(f"{way}-{name}"))
            parts.append(own.changed(operation=code, started=at, duration=seconds))
    columns = {name: np.concatenate([one.columns[name] for one in parts]) for name in table.columns}
    return Table(columns | {"work": np.full(len(columns["rank"]), tokens)}, strings)


@pytest.mark.parametrize("layers", [1, 12])
def test_a_row_for_each_layer_is_played_as_one_for_all(layers: int) -> None:
    """What a slow worker costs is known, also where a microbatch runs each operation once a layer."""
    verdict = _of_layers(("attention", "mlp") * layers, ("attention", "mlp")).verdict()
    assert (ranks(verdict), verdict.action.kind) == ([5], "evict")
    assert "this costs the job 2" in verdict.culprits[0].why


@pytest.mark.parametrize("name", ["expert_mlp", "FusedMoE_forward", "experts.3.forward", "grouped_gemm", "router"])
def test_where_operations_are_of_experts_those_of_one_rank_may_get_more(name: str) -> None:
    """Nothing else of the trace says that there are any."""
    verdict = _of_layers(("compute", name), ("compute", name)).verdict()
    assert named_nobody(verdict)
    assert "its experts may get more tokens" in verdict.evidence[0].text


@pytest.mark.parametrize(("slow", "tokens", "action"), [
    (("attention", "lm_head", "expert_mlp"), 8192.0, "evict"),
    (("attention", "lm_head", "expert_mlp"), np.nan, "probe"),
    (("expert_mlp",), 8192.0, "none"),
    (("attention",), 8192.0, "none"),
])  # fmt: skip
def test_a_machine_with_experts_is_slow_in_what_is_none_of_theirs_too(
    slow: tuple[str, ...], tokens: float, action: str
) -> None:
    """A hot expert is longer by itself, and attention by long documents; a slow machine is so in the head, too."""
    verdict = _of_layers(("attention", "lm_head", "expert_mlp"), slow, tokens).verdict()
    assert verdict.action.kind == action
    assert named_nobody(verdict) == (action == "none")


@pytest.mark.parametrize("name", ["layernorm_mlp", "norm_ffn", "norm_block", "attn_ffn", "fused_attention"])
def test_a_name_of_several_parts_is_not_of_the_one_that_tokens_fix(name: str) -> None:
    """Where ranks exchange tokens, its experts may get more of them."""
    table = _of_layers(("core_attention", *[name] * 9), (name,))
    exchanges = replace(table, strings=tuple("all-to-all" if "scatter" in one else one for one in table.strings))
    assert named_nobody(exchanges.verdict())


@pytest.mark.parametrize("name", ["fused_qkv_attention", "lm", "norm_block", "linear_attention", "image_embedding"])
def test_what_may_have_longer_documents_or_images_in_it_evicts_nobody(name: str) -> None:
    """As many tokens of them cost unlike."""
    verdict = _of_layers(("attention", name), ("attention", name)).verdict()
    assert (ranks(verdict), verdict.action.kind) == ([5], "probe")


@pytest.mark.parametrize("name", ["grouped_query_attention", "memoexpand", "aten::permute", "grouped_norm"])
@pytest.mark.parametrize("reduces", ["grouped-reduce-scatter", "router-reduce-scatter", "experts-reduce-scatter"])
def test_names_that_only_sound_like_experts_are_of_none(name: str, reduces: str) -> None:
    """Whole words of what computes are theirs; a slow machine of a dense model is evicted."""
    table = _of_layers(("mlp", name), ("mlp", name))
    table = replace(table, strings=tuple(reduces if "scatter" in one else one for one in table.strings))
    verdict = table.verdict()
    assert (ranks(verdict), verdict.action.kind) == ([5], "evict")


def test_a_device_without_a_second_one_of_its_model_is_not_called_healthy() -> None:
    """It is compared with none, and the others wait for it."""
    job = OpJob(stages=1, replicas=8, worker=lambda _, replica, __: 1.5 if replica == 7 else 1.0)
    records = [
        msgspec.structs.replace(one, device_model="A100" if one.rank == 7 else "H100")
        for one in simulated(job).records()
    ]
    verdict = judged(records)
    assert (verdict.symptom, verdict.abstained) == ("unknown", True)
    assert "rank 7" in verdict.missing[0].what


def test_workers_that_differ_too_much_to_show_one_of_half_the_speed_are_not_called_healthy() -> None:
    """Four, whose times vary by half from one step to the next."""
    table = simulated(OpJob(stages=1, replicas=4, microbatches=1, steps=6))
    draws = np.exp(np.random.default_rng(2).normal(0, 0.5, len(table)))
    longer = np.where(table.named("compute"), draws, 1.0)
    verdict = _without(table.changed(duration=table.columns["duration"] * longer), "started").verdict()
    assert verdict.symptom != "healthy"


def test_without_a_column_of_stages_a_named_rank_s_stage_is_in_doubt() -> None:
    """A last stage that is longer looks like a slow machine."""
    job = OpJob(stages=1, replicas=4, worker=lambda _, replica, __: 1.4 if replica == 3 else 1.0)
    assert "its stage" in _without(simulated(job), "pp", "dp").verdict().culprits[0].why
