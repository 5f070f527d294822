"""The command line: what it prints where, and the exit code that each ending has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzers.model.verdict import Action, Culprit, Root, Verdict
from collectors.records import FlightRecorderDump, Group, KernelEvent, Members, Placement, Record
from service.cli import run
from service.cli.expectation import failures, parse
from tests.support.faulthound_process import AN_EVENT, NOT_READ, REPOSITORY, faulthound
from tests.support.sample_verdicts import hang, healthy, megatron, two_ranks, undecided


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(two_ranks(), 0), (hang(), 0), (healthy(), 0), (undecided(), 3)],
    ids=["ranks", "node", "healthy", "abstained"],
)
def test_a_verdict_ends_with_its_code(judged: dict[str, object], folder: str, verdict: Verdict, code: int) -> None:
    """A verdict, healthy included, ends with 0 and an abstention with 3."""
    judged["verdict"] = verdict

    assert run(["diagnose", folder]) == code


def test_the_verdict_goes_to_stdout_and_talk_to_stderr(
    judged: dict[str, object], folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stdout holds the answer alone, so that it can be piped; --quiet silences the notes."""
    page = tmp_path / "report.html"
    assert run(["diagnose", folder, "--html", str(page)]) == 0
    first = capsys.readouterr()
    assert run(["diagnose", folder, "--html", str(page), "-q", "--json"]) == 0
    second = capsys.readouterr()

    assert first.out.startswith("Ranks 9 and 14")
    assert first.err == f"report: {page}\n"
    assert json.loads(second.out)["culprits"][1]["ranks"] == [14]
    assert second.err == ""
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["diagnose", "/nowhere/at/all"], "/nowhere/at/all does not exist"),
        (["diagnose", "FOLDER", "--html", "/nowhere/at/all/report.html"], "/nowhere/at/all does not exist"),
        (["diagnose", "FOLDER", "--expect", "culprit"], "FIELD=VALUE"),
        (["diagnose", "FOLDER", "--knowledge", "/nowhere.toml"], "does not exist"),
        (["diagnose", "FOLDER", "--hosts", "gpu-[0-99999999]"], "1,000,000"),
        (["diagnose", "FOLDER", "--hosts", "gpu-[1"], "gpu-[0001-0004,0007]"),
        (["diagnose", "FOLDER", "--hosts", "/nowhere/hosts"], "neither a file nor a hostlist"),
        (["diagnose", "FOLDER", "--hosts", "gpu-1="], "'gpu-1=' is no host name"),
        (["diagnose", "FOLDER", "--hosts", "gpu-1,gpu-2:"], "'gpu-2:' is no host name"),
        (["diagnose", "FOLDER", "--hosts", "mistyped.txt"], "neither a file nor a hostlist"),
        (["diagnose", "FOLDER", "--attempt", "9"], "attempt 9 is not among"),
        (["diagnose", "FOLDER", "--ranks-per-node", "0"], "--ranks-per-node"),
        (["diagnose"], "PATH"),
        (["no-such-verb"], "no-such-verb"),
        (["read", "/nowhere/at/all"], "/nowhere/at/all does not exist"),
    ],
)
def test_bad_usage_says_what_and_ends_with_2(
    judged: dict[str, object], folder: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad usage names the thing on stderr, prints no verdict and ends with 2."""
    assert run([folder if argument == "FOLDER" else argument for argument in arguments]) == 2

    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("file", "records", "said"),
    [
        (None, [], "there is no file in"),
        ("rank0.log", [], "nothing in"),
        ("core", [NOT_READ] * 3, "nothing readable in"),
    ],
)
def test_nothing_readable_ends_with_2(
    judged: dict[str, object], folder: str, file: str | None, records: list[Record], said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Where nothing could be read there is no verdict, but which kind of nothing it is, and the reasons, equal ones once."""
    judged["records"] = records
    if file:
        (Path(folder) / file).write_text("step 1", encoding="utf-8")

    assert run(["diagnose", folder]) == 2

    shown = capsys.readouterr()
    assert f"faulthound: {said} {folder}" in shown.err
    assert shown.err.count("no reader knows it") == bool(records)
    assert shown.out == ""


@pytest.mark.parametrize(
    ("expected", "met"),
    [
        (["culprit=rank:9", "culprit=rank:14"], True),
        (["culprit=rank:9"], False),
        (["culprit=rank:9,14"], True),
        (["culprit=rank:9,14-15"], False),
        (["culprit=none"], False),
        (["cause=machine", "symptom=hang", "class=completion_lost", "action=evict", "abstained=false"], True),
        (["cause=code"], False),
        (["class=desync"], False),
        (["abstained=true"], False),
    ],
)
def test_expectations_decide_the_code(
    judged: dict[str, object], folder: str, expected: list[str], met: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """All culprits together must be the named ones exactly; a mismatch ends with 1 and shows both sides."""
    code = run(["diagnose", folder, *(part for text in expected for part in ("--expect", text))])

    assert code == (0 if met else 1)
    assert ("expected" in capsys.readouterr().err) == (not met)


def test_expectations_cover_culprits_of_any_kind() -> None:
    """A node is met by its name or by its guilty ranks; a set needs all of its ranks; an extra name is a failure."""
    node = hang()
    group = Verdict(
        symptom="hang", cause="machine", abstained=False, roots=(Root(root="r1", cause="machine"),), action=Action(kind="probe"),
        culprits=(Culprit(root="r1", kind="group", id="pp_3", ranks=(12, 13, 14, 15)),),
    )  # fmt: skip

    assert not list(failures(parse(["culprit=node:gpu-0413"]), node))
    assert not list(failures(parse(["culprit=rank:3304"]), node))
    assert list(failures(parse(["culprit=node:gpu-0414"]), node)) == [
        "expected culprit node:gpu-0414, found node:gpu-0413 (rank:3304)"
    ]
    assert list(failures(parse(["culprit=node:gpu-0413", "culprit=node:gpu-0414"]), node))
    assert not list(failures(parse(["culprit=rank:12-15"]), group))
    assert list(failures(parse(["culprit=rank:12-14"]), group))


def test_an_expected_abstention_is_a_success(judged: dict[str, object], folder: str) -> None:
    """abstained=true met ends with 0; other expectations met by an abstention leave its 3."""
    judged["verdict"] = undecided()

    assert run(["diagnose", folder, "--expect", "abstained=true"]) == 0
    assert run(["diagnose", folder, "--expect", "culprit=none"]) == 3
    assert run(["diagnose", folder, "--expect", "abstained=false"]) == 1


@pytest.mark.parametrize("wrong", ["culprit=14", "who=me", "abstained=maybe", "culprit=rank:x", "culprit=", "cause"])
def test_a_wrong_expectation_says_how_to_write_it(wrong: str) -> None:
    """An expectation that cannot be understood is refused before anything is read."""
    with pytest.raises(ValueError, match="write"):
        parse([wrong])


def test_none_excludes_every_other_culprit() -> None:
    """culprit=none beside a culprit is a contradiction and not silently one of the two."""
    with pytest.raises(ValueError, match="excludes"):
        parse(["culprit=none", "culprit=rank:1"])


def test_options_reach_the_reading_and_the_window(judged: dict[str, object], folder: str) -> None:
    """Workers go to the reader, the attempt to the window, hosts become one placement record."""
    window, _ = megatron(2, 2, 2, culprit=5)
    judged["records"] = [
        *window.records,
        FlightRecorderDump(rank=0, attempt=1, groups=(Group("0", "default_pg", Members.of(range(8))),)),
        KernelEvent(source="k", event="aer", attempt=2),
        KernelEvent(source="k", event="xid", attempt=1),
    ]

    assert run(["diagnose", folder, "--workers", "3", "--attempt", "1", "--hosts", "gpu-[01-02]"]) == 0

    assert judged["workers"] == 3
    given = judged["window"]
    assert given.attempt == 1  # type: ignore[attr-defined]
    (placement,) = given.records_of(Placement)  # type: ignore[attr-defined]
    assert placement.nodes == ("gpu-01",) * 4 + ("gpu-02",) * 4
    assert placement.ranks.ranks() == tuple(range(8))


def test_a_lone_waiting_dump_asks_for_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """The highest rank that was seen is no size of the job, and the dumps of the others come first."""
    assert run(["diagnose", str(REPOSITORY / "examples/hung_job/fr_rank4.json"), "--workers", "1"]) == 3

    said = " ".join(capsys.readouterr().out.split())
    assert "1 of at least 5 ranks seen" in said
    assert "More evidence first: The flight-recorder dumps of the other ranks" in said
    assert said.index("fr_trace_json") < said.index("py-spy")  # the dump is gloo's: NCCL's pipe gives none
    assert "fr_*.pipe" not in said


def test_the_help_states_that_2_also_means_that_nothing_shows_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """A log that can be read and shows no error ends with 2, and the help and the README state it."""
    assert run(["--help"]) == 0

    stated = "nothing in the files shows a fault or a wait"
    assert stated in " ".join(capsys.readouterr().out.split())
    assert stated in (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_the_usage_shows_that_several_paths_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    """The arguments are listed as what they are, and no text refers below where it stands above."""
    assert run(["diagnose", "--help"]) == 0

    said = capsys.readouterr().out
    assert "[OPTIONS] {PATH...}\n" in said
    assert "see below" not in said


def test_read_prints_json_lines(judged: dict[str, object], folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each record is one line with its kind, time, node and own fields; what was not read has its reason."""
    assert run(["read", folder, "--json"]) == 0

    event, unread = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert list(event)[:2] == ["kind", "source"]
    assert (event["kind"], event["code"], event["pci"], event["node"]) == ("kernel_event", 79, "0000:9b:00", "gpu-7")
    assert event["time"] == "2026-11-21T03:14:07.120Z"
    assert (unread["kind"], unread["reason"]) == ("unread", "no reader knows it")


def test_read_expands_a_dump(judged: dict[str, object], folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A dump is one line whose columns are entries; --limit keeps the newest, and JSON has all without it."""
    window, _ = megatron(2, 2, 2, culprit=5)
    judged["records"] = [window.dumps[4]]

    def entries(*options: str) -> list[dict[str, object]]:
        assert run(["read", folder, "--json", *options]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        return json.loads(line)["entries"]  # type: ignore[no-any-return]

    every = entries()
    assert len(every) == 22
    assert every[-1]["operation"] == "nccl:all_reduce"
    assert (every[-1]["state"], every[-1]["collective_seq"], every[-1]["group"]) == ("scheduled", 881, "tp_2")
    assert "timeout_ms" not in every[-1]
    assert entries("--limit", "2") == every[-2:]
    assert entries("--limit", "0") == []


def test_read_shows_people_a_table(judged: dict[str, object], folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json there is a row a record, and the newest entries of each dump below."""
    window, _ = megatron(2, 2, 2, culprit=5)
    judged["records"] = [AN_EVENT, window.dumps[4], NOT_READ]

    assert run(["read", folder]) == 0

    shown = capsys.readouterr().out
    assert "code=79" in shown
    assert "22 entries, 1 unfinished" in shown
    assert "no reader knows it" in shown
    assert shown.count("all_reduce") == 9  # the newest ten entries: one of them a reduce_scatter
    assert max(map(len, shown.splitlines())) < 250


def test_read_shows_the_values_of_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The step, its seconds and its loss, of the newest ones; what no line gives is stated."""
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {n} loss {3 - n / 100:.2f} time 41{n % 10}.5ms\n" for n in range(40)))

    assert run(["read", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "40 steps (plain), 0 to 39, 0.415 s a step (median), loss 3 to 2.61" in shown
    assert shown.splitlines()[-1].split() == ["39", "0.4195", "2.61"]
    assert len(shown.splitlines()) == 2 + 1 + 2 + 10

    assert run(["read", str(log), "--json", "--limit", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"][0]["seconds"] == 0.4195

    log.write_text("step 1 loss 2.5\n")
    assert run(["read", str(log)]) == 0
    assert "1 step (plain), 1 to 1, no seconds a step, loss 2.5 to 2.5" in capsys.readouterr().out


def test_read_of_nothing_ends_with_2(
    judged: dict[str, object], folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing was readable the reasons are printed all the same, and the code is 2."""
    judged["records"] = [NOT_READ]

    assert run(["read", folder, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["reason"] == "no reader knows it"


def test_formats_lists_every_reader(capsys: pytest.CaptureFixture[str]) -> None:
    """Each registered reader is listed with what makes its files and what they give."""
    from collectors.formats import registry

    assert run(["formats", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert run(["formats"]) == 0
    table = capsys.readouterr().out

    assert [row["name"] for row in listed] == [known.name for known in registry()]
    assert all(row["made_by"] and row["gives"] and row["gives"] in table for row in listed)


@pytest.mark.system
def test_version_and_help() -> None:
    """--version and --help end with 0; every verb's help shows how it is used."""
    assert faulthound("--version").stdout.startswith("faulthound ")
    for verb in ("diagnose", "read", "formats"):
        shown = faulthound(verb, "--help")
        assert shown.returncode == 0
        assert shown.stdout.count(f"\n    faulthound {verb}") >= 2


@pytest.mark.system
def test_a_missing_extra_is_named() -> None:
    """Without typer or numpy the command says which extra to install and ends with 2, without a traceback."""
    for package, arguments in (("typer", ["--version"]), ("numpy", ["diagnose", "."])):
        done = faulthound(*arguments, before=f"import sys; sys.modules[{package!r}] = None")
        assert done.returncode == 2
        assert package in done.stderr
        assert "pip install faulthound\n" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "url", ["127.0.0.1:4747", "http://127.0.0.1:notaport", "http://127.0.0.1:99999", "http://[::1"]
)
def test_a_service_that_is_no_address_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is asked, with an example of an address."""
    assert run(["incidents", "list", "--service", url]) == 2
    assert "is no address" in capsys.readouterr().err


@pytest.mark.parametrize(("unit", "judged"), [("step", True), ("line", False)])
def test_a_job_whose_log_has_no_numbers_is_said_not_to_have_its_pace_judged(unit: str, judged: bool) -> None:
    """Lines are counted for its silence alone."""
    from service.cli.jobs import steps_lines

    steps = {"unit": unit, "step": 433, "at": 0.0, "median_seconds": None}
    said = " ".join(steps_lines(steps, unicode=False))
    assert ("whether its steps become longer is not judged" not in said) == judged


@pytest.mark.parametrize(("newest", "shown"), [(1.0, False), (1.5, True)])
def test_the_newest_pace_of_a_job_is_shown_where_it_is_another(newest: float, shown: bool) -> None:
    """The median of all kept reports is that of the time before a slowdown."""
    from service.cli.jobs import steps_lines

    recent = [1.0] * 200 + [newest] * 40
    steps = {"unit": "step", "step": 433, "at": 0.0, "median_seconds": 1.0, "recent_seconds": recent}
    said = " ".join(steps_lines(steps | {"longest_seconds": newest}, unicode=False))
    assert ("1.5 s that of the newest 16" in said) == shown


@pytest.mark.parametrize(("reports", "said"), [(1, "(by one report)"), (7, "(median of the last 7 reports)")])
def test_one_report_is_no_median(reports: int, said: str) -> None:
    """A job that has just begun."""
    from service.cli.jobs import steps_lines

    steps = {"unit": "step", "step": 9, "at": 0.0, "median_seconds": 1.0, "recent_seconds": [1.0] * reports}
    assert said in " ".join(steps_lines(steps | {"longest_seconds": None}, unicode=False))
