"""What reports are made of: ranges, waits, the map of ranks, groups of stacks, the timeline, pages."""

from __future__ import annotations

import html.parser
import re
import time

import msgspec
import pytest

from analyzers.model import verdict as document
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology
from analyzers.model.verdict import Culprit, Verdict
from analyzers.model.window import Window
from collectors.records import KernelEvent, StackDump
from service.reports import html as report
from service.reports.hostlists import fold_hosts, parse_ranks, ranks_for_people
from service.reports.rank_map import rank_map
from service.reports.rank_states import rank_states
from service.reports.stack_groups import stack_groups
from service.reports.timeline import timeline
from service.reports.waits import most_missed, oldest_waits
from tests.support.bounds import in_time
from tests.support.sample_verdicts import BEGAN_AT, hang, healthy, megatron, stack, two_ranks, undecided

EVERY = (hang, two_ranks, undecided, healthy)
NOBODY_KNOWN = (Window.build([]), Topology())
ATTACK = "<script>alert(1)</script>"


def changed(verdict: Verdict, **fields: object) -> Verdict:
    """Return the verdict with some fields replaced."""
    return msgspec.structs.replace(verdict, **fields)


class Elements(html.parser.HTMLParser):
    """Collects a page's elements, the text of its scripts, and tags left open."""

    VOID = frozenset({"meta", "br", "rect", "line", "link", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def test_a_command_in_a_sentence_is_shown_as_code_and_escaped() -> None:
    """Backticks are for the terminal; what stands in them may be foreign, and is escaped first."""
    verdict = hang()
    action = msgspec.structs.replace(verdict.action, why=f"see `scontrol show node`, then `{ATTACK}`")
    page = report.page(changed(verdict, action=action), *NOBODY_KNOWN)

    assert "<code>scontrol show node</code>" in page
    assert "<code>&lt;script&gt;alert(1)&lt;/script&gt;</code>" in page
    assert f"<code>{ATTACK}" not in page
    Elements(page)


def test_rank_ranges_come_back() -> None:
    """Ranks folded into ranges unfold to the same ranks; people get a bounded number of them."""
    ranks = (0, 1, 2, 5, 7, 8)

    assert ranges(ranks) == "0-2,5,7-8"
    assert parse_ranks("0-2,5, 7-8") == ranks
    assert ranks_for_people(range(0, 100, 2), most=2) == "0, 2 and 48 more"
    for wrong in ("5-2", "a", "0-999999999", "-1"):
        with pytest.raises(ValueError, match=re.escape(wrong)):
            parse_ranks(wrong)


def test_hosts_are_folded_with_their_widths() -> None:
    """Hosts are reported in Slurm's notation, widths kept; a name without a number stays as it is."""
    assert fold_hosts(("gpu-0001", "gpu-0007", "gpu-0002", "login")) == "gpu-[0001-0002,0007],login"


def test_waits_name_who_is_missing() -> None:
    """The wait that lacks the guilty rank comes first, with who entered it, of how many, and since when."""
    window, topology = megatron(4, 2, 2, culprit=5)
    waits = oldest_waits(window, topology)
    reduce = next(wait for wait in waits if wait.operation == "all_reduce")

    assert waits[0].missing == (5,)
    assert (reduce.missing, reduce.waiting, reduce.size, reduce.sequence) == ((5,), (4, 6, 7), 4, 881)
    assert reduce.since_ns == int((BEGAN_AT + 0.04) * 1e9)
    assert most_missed(waits)[0] == (5, 2)


def test_members_that_stand_at_different_operations_are_told_apart() -> None:
    """Where a rank lost an old operation that its peers are past, both places show, and it is missing from the newer."""
    window, topology = megatron(4, 1, 1, culprit=0)
    lost = bytearray(window.dumps[0].columns["state"])
    lost[-3:-1] = b"\0\0"  # its last two all-reduces, 879 and 880, never ended
    sick = msgspec.structs.replace(
        window.dumps[0], columns={**window.dumps[0].columns, "state": bytes(lost), "retired": bytes(lost)}
    )
    waits = oldest_waits(Window.build([sick, *window.dumps[1:]]), topology)

    assert [(wait.sequence, wait.waiting, wait.missing) for wait in waits] == [(881, (1, 2, 3), (0,)), (879, (0,), ())]
    assert most_missed(waits) == ((0, 1),)


def test_nodes_are_named_on_the_map() -> None:
    """Without parallel coordinates each node is a block under its own name."""
    topology = Topology(tuple(range(4)), {0: "gpu-a", 1: "gpu-a", 2: "gpu-b", 3: "gpu-b"})
    laid_out = rank_map(topology, topology.ranks)

    assert [label.text for label in laid_out.labels] == ["gpu-a", "gpu-b"]
    assert laid_out.cells[1][0] - laid_out.cells[0][0] == 10 < laid_out.cells[2][0] - laid_out.cells[1][0]


def test_a_rank_without_a_dump_is_missing_and_silent() -> None:
    """A rank that left no dump is distinguished from one that is known not to have entered."""
    window, topology = megatron(4, 2, 2, culprit=5, silent=(5,))
    reduce = next(wait for wait in oldest_waits(window, topology) if wait.operation == "all_reduce")

    assert reduce.missing == reduce.silent == (5,)


def test_a_receive_names_its_peer() -> None:
    """A pending receive waits for the peer of that pair, as a global rank."""
    window, topology = megatron(1, 2, 2, culprit=0)
    receives = [wait for wait in oldest_waits(window, topology) if wait.sequence is None]

    assert [(wait.operation, wait.waiting, wait.missing) for wait in receives] == [("recv from 0", (2,), (0,))]


def test_every_rank_is_in_exactly_one_state() -> None:
    """The map's legend counts every rank once, the named ones as named though they wait or are silent."""
    window, topology = megatron(2, 2, 4, culprit=5, silent=(5, 6))
    verdict = changed(two_ranks(), culprits=(Culprit(root="r1", kind="rank", id="5", ranks=(5,)),))
    states = rank_states(verdict, window, topology, oldest_waits(window, topology))

    assert sorted(rank for state in states.states for rank in state.ranks) == list(range(16))
    assert (states.states[0].style, states.states[0].ranks) == ("culprit", (5,))
    assert states.silent == {5, 6}


@pytest.mark.parametrize(("tp", "pp", "dp"), [(8, 4, 4), (4, 1, 3), (1, 4, 2), (2, 2, 64)])
def test_no_two_ranks_share_a_place(tp: int, pp: int, dp: int) -> None:
    """Cells do not overlap, a stage keeps its rows and a tensor-parallel group stays together."""
    _, topology = megatron(tp, pp, dp, culprit=0)
    for known in (topology, Topology(topology.ranks, topology.nodes), Topology(topology.ranks)):
        laid_out = rank_map(known, known.ranks)
        assert len(set(laid_out.cells.values())) == tp * pp * dp
        assert all(0 <= x <= laid_out.width - 9 and 0 <= y <= laid_out.height - 9 for x, y in laid_out.cells.values())
    laid_out = rank_map(topology, topology.ranks)
    stage_of_row = {y: topology.coordinates[rank]["pp"] for rank, (_, y) in laid_out.cells.items()}
    assert all(stage_of_row[y] == topology.coordinates[rank]["pp"] for rank, (_, y) in laid_out.cells.items())


def test_stack_groups_put_the_outlier_first() -> None:
    """Processes that stand in one place are one row, the fewest first; frames that all share are folded."""
    window = Window.build([stack(rank, "wait" if rank != 3 else "__next__") for rank in range(6)])
    first, second = stack_groups(window)

    assert (first.ranks, first.holds_gil, first.common) == ((3,), 1, 2)
    assert second.ranks == (0, 1, 2, 4, 5)


def test_stack_groups_leave_out_a_ranks_own_children() -> None:
    """A data-loader worker is no second opinion about its rank."""
    parent = stack(1, "wait")
    child = StackDump(source="c", rank=1, pid=77, parent_pid=parent.pid, threads=stack(1, "worker_loop").threads)

    assert [group.frames[0] for group in stack_groups(Window.build([parent, child]))] == ["wait (data/dataloader.py)"]


def test_timeline_keeps_to_the_incident() -> None:
    """Events of other days are counted and left out; the first symptom is pinned where it happened."""
    window, topology = megatron(2, 2, 2, culprit=5)
    old = KernelEvent(source="kern.log:1", at=BEGAN_AT - 9 * 86400, event="aer", text="long ago")
    lanes = timeline(hang(), Window.build([*window.records, old]), oldest_waits(window, topology))

    assert lanes is not None
    assert lanes.outside == 1
    assert lanes.pinned is not None
    assert lanes.begin + lanes.pinned * (lanes.end - lanes.begin) == pytest.approx(BEGAN_AT, abs=1e-3)
    assert timeline(healthy(), Window.build([]), ()) is None


@pytest.mark.parametrize("sample", EVERY)
def test_pages_are_whole_and_self_contained(sample: object) -> None:
    """Every page is well formed, loads nothing from anywhere, and allows no script but its own."""
    verdict = sample()  # type: ignore[operator]
    window, topology = megatron(2, 4, 2, culprit=14) if sample is not healthy else NOBODY_KNOWN
    page = report.page(verdict, window, topology)
    elements = Elements(page)

    assert elements.open == []
    assert not [tag for tag, attributes in elements.found if {"src", "onclick", "onload", "style"} & attributes.keys()]
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in elements.found)
    assert not re.search(r"https?://|@import|url\((?!#hatch)", page)
    policy = next(
        attributes["content"] for tag, attributes in elements.found if tag == "meta" and "http-equiv" in attributes
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_pages_allow_exactly_their_own_script() -> None:
    """The policy's hash is that of the page's script, character for character."""
    import base64
    import hashlib

    page = report.page(hang(), *NOBODY_KNOWN)
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)[-1]

    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in page


def test_pages_escape_what_files_contain() -> None:
    """Markup in frames, file names, hosts, groups and sentences is shown, never obeyed."""
    window, topology = megatron(2, 2, 2, culprit=5)
    records = [
        *window.records,
        stack(3, ATTACK, ATTACK),
        KernelEvent(source=ATTACK, at=BEGAN_AT, event="xid", text=ATTACK),
    ]
    evil = Culprit(root="r1", kind="node", id=ATTACK, ranks=(5,), probability=0.9, why=ATTACK, evidence=("e1",))
    verdict = changed(
        hang(),
        job=ATTACK,
        culprits=(evil,),
        suspects=(evil,),
        evidence=(document.EvidenceItem(id="e1", text=ATTACK, source=ATTACK),),
        victims=document.Victims(count=1, ranks=ATTACK, chains=(f"{ATTACK} → 5",)),
        missing=(document.Missing(what=ATTACK),),
        rejected=(document.Rejected(kind="node", id=ATTACK, why=ATTACK),),
        action=document.Action(kind="evict", nodes=(ATTACK,), why=ATTACK),
        coverage=document.Coverage(unread=(ATTACK,), sources={ATTACK: 1}),
        first_symptom=document.FirstSymptom(text=ATTACK, at=ATTACK),
    )
    topology = Topology(topology.ranks, dict.fromkeys(topology.ranks, ATTACK), topology.groups, topology.coordinates)
    page = report.page(verdict, Window.build(records), topology)

    assert ATTACK.lower() not in page.lower()
    assert "alert(1)" in page
    assert not any("alert(1)" in script for script in Elements(page).scripts[1:])
    assert len([tag for tag, _ in Elements(page).found if tag == "script"]) == 2


def test_pages_show_the_culprit_by_more_than_colour() -> None:
    """On the map the named rank is outlined and marked, a silent one hatched, and a table says the same."""
    window, topology = megatron(2, 4, 2, culprit=14, silent=(3,))
    page = report.page(two_ranks(), window, topology)

    assert page.count('class="ring" x=') >= 2
    assert 'class="hatched"' in page
    assert re.search(r"named by the verdict</td><td class=\"n\">2</td><td>9 and 14<", page)


@pytest.mark.system
def test_pages_of_large_jobs_stay_small_and_quick() -> None:
    """16,384 ranks make a page below 3 MB in under 3 s, drawn on a canvas with a table beside it."""
    window, topology = megatron(8, 16, 128, culprit=3304, silent=(21, 22, 9000), entries=4)
    _ = window.recorder
    started = time.process_time()
    page = report.page(hang(), window, topology)

    assert in_time(time.process_time() - started, 3)
    assert len(page.encode()) < 3_000_000
    assert "<canvas" in page
    assert "named by the verdict" in page


def test_more_ranks_than_any_job_has_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound on drawn ranks the page keeps its table and leaves the map out; at the bound it draws."""
    window, topology = megatron(2, 2, 4, culprit=5)
    monkeypatch.setattr(report, "MOST_MAP_RANKS", 16)
    at_the_bound = report.page(two_ranks(), window, topology)
    monkeypatch.setattr(report, "MOST_MAP_RANKS", 15)
    beyond = report.page(two_ranks(), window, topology)

    assert "mapframe" in at_the_bound.split("<script")[0]
    assert "mapframe" not in beyond.split("<script")[0]
    assert "named by the verdict" in beyond
    assert Elements(beyond).open == []
