"""`faulthound replay`: the same bytes from the same records, and what it says where they are not the same."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzers.model.verdict import to_json
from collectors.records import bundle
from service.packaged_knowledge import load
from tests.support import recorded_incident as recorded
from tests.support.command_line import Done, faulthound


def replayed(*arguments: str | Path) -> Done:
    """Run `faulthound replay`."""
    return faulthound("replay", *arguments)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a whole bundle of an incident with two versions."""
    return recorded.write(tmp_path_factory.mktemp("bundle") / "incident.fhz")


def test_every_version_is_the_same_bytes(whole: Path) -> None:
    """Both versions are judged again from their own records only, and give the bytes that were published."""
    done = replayed(whole, "--json")
    reported = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert [one["same"] for one in reported["versions"]] == [True, True]
    assert [[named["id"] for named in one["culprits"]] for one in reported["versions"]] == [[], ["gpu-0004"]]
    assert reported["verdict"] == json.loads(to_json(recorded.verdict_of(recorded.CUTS[1])))
    assert (reported["incident"]["id"], reported["damage"]) == (recorded.ID, [])


def test_diagnose_of_an_export_says_what_was_published(tmp_path: Path) -> None:
    """The records decide less by themselves: by the cut that they were judged at, the action and its reason are those of then."""
    path = recorded.write(tmp_path / "incident.fhz")
    done = faulthound("diagnose", str(path), "--json")

    assert (done.returncode, json.loads(done.stdout)) == (0, json.loads(to_json(recorded.verdict_of(recorded.CUTS[1]))))


@pytest.mark.parametrize(("job", "code"), [(recorded.JOB, 0), ("nosuch", 2)])
def test_diagnose_of_an_export_heeds_the_job(whole: Path, job: str, code: int) -> None:
    """An export of another job than the chosen one is none of it."""
    done = faulthound("diagnose", str(whole), "--job", job)

    assert (done.returncode, "job nosuch is not among what was read" in done.stderr) == (code, code == 2)


def test_diagnose_of_an_export_whose_verdict_saw_nothing_reads_its_records() -> None:
    """Its cut is before them: they are judged as files are."""
    done = faulthound("diagnose", str(Path(__file__).parents[2] / "golden/incident_v1.fhz"))

    assert "kernel event" in done.stdout + done.stderr
    assert "(nothing)" not in done.stdout


def test_diagnose_of_an_export_counts_what_came_after_its_verdict(whole: Path) -> None:
    """They may say more than the verdict, which was judged without them."""
    assert "the newest verdict is older than 1 of the records" in " ".join(
        faulthound("diagnose", str(whole)).stderr.split()
    )


@pytest.mark.parametrize("number", [1, 2])
def test_one_version_is_exactly_its_document(whole: Path, number: int) -> None:
    """`--version N --json` prints the document's bytes and nothing more, so that `cmp` can be asked."""
    done = replayed(whole, "--version", str(number), "--json")

    assert done.out == recorded.published()[number - 1].document


def test_how_the_verdict_changed_is_told(whole: Path) -> None:
    """People get a line a version with what changed and whether the bytes are the same, and then the verdict."""
    lines = replayed(whole).stdout.splitlines()

    assert lines[0].startswith(f"{recorded.ID}: hang of {recorded.JOB}, attempt 1, opened 2026-11-21")
    assert lines[3].split()[-2:] == ["first", "same"]
    assert "culprit none → node gpu-0004 (rank 3)" in lines[4]
    assert any(line.startswith("Node gpu-0004 (rank 3) hangs the job") for line in lines)


@pytest.mark.parametrize("plan", [None, "restart_job"])
def test_what_was_planned_stands_beside_the_newest_version(tmp_path: Path, plan: str | None) -> None:
    """The incident's page shows the plan: a replay shows it too, and says which action is the verdict's own."""
    bundled = recorded.write(tmp_path / "incident.fhz", plan=plan)
    shown, early = replayed(bundled).stdout, replayed(bundled, "--until", "8s").stdout
    own = recorded.verdict_of(recorded.CUTS[1]).action.kind

    assert (f"restart_job (verdict: {own})" in shown) is (plan is not None)
    assert ("Planned at the export: restart job. The verdict by itself" in shown) is (plan is not None)
    assert "restart_job" not in early
    assert json.loads(replayed(bundled, "--json").stdout)["versions"][1]["action"] == own


def test_until_is_what_was_known_then(whole: Path) -> None:
    """Eight seconds after the opening only the first version was there: it abstained."""
    early = replayed(whole, "--until", "8s", "--expect", "culprit=none", "--expect", "abstained=true")
    wrong = replayed(whole, "--until", "2026-11-21T03:14:15Z", "--expect", "culprit=node:gpu-0004")
    never = replayed(whole, "--until", "1s")

    assert early.returncode == 0, early.stderr
    assert wrong.returncode == 1
    assert "expected culprit node:gpu-0004, found none (it abstained)" in wrong.stderr
    assert never.returncode == 2
    assert "has no version of the verdict by then (it has 1 to 2)" in never.stderr


@pytest.mark.parametrize("when", ["99", "yesterday", "2h ago", "s"])
def test_until_says_what_it_takes(whole: Path, when: str) -> None:
    """What is neither a span after the opening nor an instant ends with 2, and both forms are shown."""
    done = replayed(whole, "--until", when)

    assert done.returncode == 2
    assert f"--until '{when}' is no instant: write 90s (after the opening) or 2026-11-21T03:14:07Z" in done.stderr


def test_another_byte_is_an_error(tmp_path: Path) -> None:
    """Where the same program with the same knowledge judges otherwise, replay shows where and leaves with 1."""
    first, second = recorded.published()
    altered = replace(second, document=second.document.replace(b'"symptom": "hang"', b'"symptom": "slow"'))

    done = replayed(recorded.write(tmp_path / "incident.fhz", [first, altered, *recorded.batches()]))

    assert done.returncode == 1
    assert "version 2 is not the bytes that were published, by the same program" in done.stderr
    assert '  +  "symptom": "hang",' in done.stdout
    assert '  -  "symptom": "slow",' in done.stdout


def test_another_program_may_judge_otherwise(tmp_path: Path) -> None:
    """What an older program published differently is shown with its version, and is no error."""
    old = [replace(one, program="0.0.9", document=b'{"symptom": "hang"}') for one in recorded.published()]

    done = replayed(recorded.write(tmp_path / "incident.fhz", [*old, *recorded.batches()]))

    assert done.returncode == 0, done.stderr
    assert "version 1: - as faulthound 0.0.9 with knowledge sha256:" in done.stdout
    assert "differ (by 0.0.9" in done.stdout


def test_other_knowledge_may_judge_otherwise(whole: Path, tmp_path: Path) -> None:
    """A site's own tables give another hash: the difference is shown, what was published is named, and it is no error."""
    (tmp_path / "xid.toml").write_text('[codes]\n109 = { action = "none", strength = 0.1 }\n', encoding="utf-8")

    done = replayed(whole, "--knowledge", tmp_path, "--json")
    reported = json.loads(done.stdout)["versions"][1]

    assert done.returncode == 0, done.stderr
    assert reported["knowledge"]["published"] == load().hash != reported["knowledge"]["now"]
    assert (reported["same"], reported["same_judgement"]) == (False, True)
    assert reported["culprits"][0]["id"] == "gpu-0004"


def test_an_incident_without_a_verdict_says_so(tmp_path: Path) -> None:
    """Where nothing was published there is nothing to compare: replay says what can be done instead."""
    path = tmp_path / "incident.fhz"
    manifest = recorded.manifest()
    assert manifest.incident is not None
    silent = replace(manifest, incident=replace(manifest.incident, cuts=()))
    path.write_bytes(b"".join(bundle.write(silent, recorded.batches())))

    done = replayed(path)

    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing was published of this incident" in done.stderr


@pytest.mark.system
@given(st.data())
@settings(max_examples=25)
def test_no_damage_makes_it_fail(data: st.DataObject) -> None:
    """Whatever is changed, cut out or put in, replay ends with a verdict or a sentence, and never calls a lie the same."""
    whole = _whole_bundle()
    begin = data.draw(st.integers(0, len(whole) - 1))
    end = data.draw(st.integers(begin, min(len(whole), begin + 200)))
    hurt = whole[:begin] + data.draw(st.binary(max_size=20)) + whole[end:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hurt.fhz"
        path.write_bytes(hurt)

        done = replayed(path, "--json")

    assert done.returncode in (0, 1, 2)
    if done.returncode != 2 and "versions" in (reported := json.loads(done.out)):
        documents = {one.version: one.document for one in recorded.published()}
        newest = max((one["version"] for one in reported["versions"] if one["same"]), default=None)
        if newest is not None and newest == reported["versions"][-1]["version"]:
            assert reported["verdict"] == json.loads(documents[newest])


@cache
def _whole_bundle() -> bytes:
    return b"".join(bundle.write(recorded.manifest(), [*recorded.published(), *recorded.batches()]))


def test_a_lost_batch_is_told(tmp_path: Path) -> None:
    """A damaged batch is named; what can still be judged is, and a verdict that comes out otherwise is not called the same."""
    batches = [replace_block(one) if one.sequence == 104 else one for one in recorded.batches()]

    path = recorded.write(tmp_path / "incident.fhz", [*recorded.published(), *batches])
    done, shown = replayed(path, "--json"), replayed(path)
    reported = json.loads(done.stdout)

    assert "damaged: batch 104" in done.stderr
    assert [one["same"] for one in reported["versions"]] == [True, False]
    assert (done.returncode, shown.returncode) == (1, 1)
    assert shown.stdout.splitlines()[4].endswith("differ (damaged)")
    assert "version 2 is not the bytes that were published, and the bundle is damaged" in shown.stderr


def replace_block(batch: bundle.Batch) -> bundle.Batch:
    """Return a batch with one changed byte."""
    data = batch.block[:-1] + bytes([batch.block[-1] ^ 1])
    return bundle.Batch(batch.sequence, batch.received_at, data, batch.node, batch.sent_at)


def test_a_cut_bundle_gives_what_is_left(tmp_path: Path) -> None:
    """A copy that stopped in the middle says so, and the first version, whose records are whole, is the same."""
    kept = [one for one in recorded.batches() if one.sequence < 104]
    begins = len(recorded.write(tmp_path / "kept.fhz", [*recorded.published(), *kept]).read_bytes())
    part = tmp_path / "part.fhz"
    part.write_bytes(recorded.write(tmp_path / "incident.fhz").read_bytes()[: begins + 60])

    done = replayed(part, "--json")

    assert json.loads(done.stdout)["versions"][0]["same"] is True
    assert "cut at byte" in done.stderr


def test_a_lost_manifest_leaves_what_was_published(tmp_path: Path) -> None:
    """Without its manifest nobody knows whose records these are: the documents are shown, and called not judged again."""
    data = bytearray(recorded.write(tmp_path / "incident.fhz").read_bytes())
    data[data.index(b"llama")] ^= 1
    (tmp_path / "incident.fhz").write_bytes(data)
    done = replayed(tmp_path / "incident.fhz", "--json")
    reported = json.loads(done.stdout)

    assert [one["same"] for one in reported["versions"]] == [None, None]
    assert reported["verdict"] == json.loads(recorded.published()[1].document)
    assert "manifest" in done.stderr


def test_a_stretch_without_its_manifest_is_run_all_the_same(tmp_path: Path) -> None:
    """Batches of which nobody knows what they are of, and no verdict among them, go through the engine, of every job."""
    stretch = bundle.write(bundle.Manifest(job=recorded.JOB), recorded.batches()[1:])
    data = bytearray(b"".join(stretch))
    data[data.index(b"llama")] ^= 1
    (tmp_path / "stretch.fhz").write_bytes(data)

    done = replayed(tmp_path / "stretch.fhz")

    assert (done.returncode, "manifest" in done.stderr) == (0, True)
    assert done.stdout.startswith("7 batches of every job: the engine opens ")


def test_no_bundle_is_refused(tmp_path: Path) -> None:
    """A file that is no bundle, one that is missing, and one that is empty behind its magic end with 2 and a next step."""
    (tmp_path / "train.log").write_text("step 1\n", encoding="utf-8")
    (tmp_path / "empty.fhz").write_bytes(bundle.MAGIC)

    for name in ("train.log", "nothing.fhz", "empty.fhz"):
        done = replayed(tmp_path / name)
        assert (done.returncode, done.stdout) == (2, ""), name
        assert name in done.stderr
