"""A bundle gives back what the service received, when, and only of its job; what is damaged is named."""

from __future__ import annotations

import time
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.files.reading import read_paths
from collectors.records import KernelEvent, LogEvent, Record, Unread, block, bundle
from collectors.records.bundle import Batch, Damage, Incident, Manifest, Published
from tests.support.bounds import in_time

AT = 1_763_700_000.0
GOLDEN = Path(__file__).parents[2] / "golden"
CUTS = tuple({"after": 0, "through": 8 + n, "at": AT + 10 + n, "looks": n} for n in range(2))
INCIDENT = Manifest(
    job="llama", attempt=2, since=AT, until=AT + 60, nodes=("gpu-1",), version="0.1.0",
    incident=Incident(
        id="inc-0123456789ab", kind="hang", job="llama", attempt=2, opened_at=AT, cuts=CUTS
    ),
)  # fmt: skip
VERDICTS = [
    Published(
        version=n + 1, at=AT + 11 + n, cut=cut, knowledge="sha256:00", program="0.1.0",
        document=b'{"schema": "faulthound.verdict/1"}\n' + bytes(range(256)),
    )
    for n, cut in enumerate(CUTS)
]  # fmt: skip


def batches(count: int = 3) -> list[Batch]:
    """Return batches of one event each, received 10 s apart."""
    return [
        Batch(7 + n, AT + 10 * n, block.encode([KernelEvent(event="xid", code=n, node="gpu-1")], pack=True))
        for n in range(count)
    ]


def written(*parts: Batch, job: str = "llama") -> bytes:
    """Return a bundle of these batches."""
    return b"".join(bundle.write(Manifest(job=job, since=AT, until=AT + 60, nodes=("gpu-1",)), parts))


def read(tmp_path: Path, data: bytes) -> list[Record]:
    """Return what `diagnose` would see of a bundle."""
    path = tmp_path / "incident.fhz"
    path.write_bytes(data)
    return list(read_paths([path]))


def test_records_come_back_with_their_receipt(tmp_path: Path) -> None:
    """Each record has the time at which its batch was received, and says which batch that was."""
    found = read(tmp_path, written(*batches()))

    assert [record.received_at for record in found] == [AT, AT + 10, AT + 20]
    assert [record.code for record in found if isinstance(record, KernelEvent)] == [0, 1, 2]
    assert found[1].source.endswith("incident.fhz#8")


def test_another_jobs_records_stay_out(tmp_path: Path) -> None:
    """A node that runs two jobs sends both in one batch; the bundle of one is judged without the other's records."""
    both = [LogEvent(event="oom", job="llama"), LogEvent(event="oom", job="mixtral"), KernelEvent(event="xid")]

    found = read(tmp_path, written(Batch(1, AT, block.encode(both))))

    assert [record.job for record in found] == ["llama", None]


def test_a_damaged_batch_costs_itself(tmp_path: Path) -> None:
    """The batches before and after one with a changed byte are read, and the damaged one is named."""
    first, second, third = batches()
    changed = Batch(second.sequence, second.received_at, second.block[:-1] + bytes([second.block[-1] ^ 1]))

    found = read(tmp_path, written(first, changed, third))

    assert [record.code for record in found if isinstance(record, KernelEvent)] == [0, 2]
    (reason,) = [record for record in found if isinstance(record, Unread)]
    assert reason.outcome == "damaged"
    assert "#8" in reason.source


def entries(data: bytes) -> tuple[list[Batch], str | None]:
    """Return the batches of a bundle and what was wrong with it, if anything was."""
    found = list(bundle.read(BytesIO(data)))
    damage = [entry.reason for entry in found if isinstance(entry, Damage)]
    return [entry for entry in found if isinstance(entry, Batch)], "; ".join(damage) or None


@given(st.data())
def test_a_cut_keeps_what_came_before(data: st.DataObject) -> None:
    """Wherever a bundle ends too early, the whole batches before the cut are read, and the cut's byte is named."""
    whole = written(*batches())
    ends = [len(written(*batches(count))) for count in range(4)]
    cut = data.draw(st.integers(len(bundle.MAGIC) + 1, len(whole) - 1))

    found, reason = entries(whole[:cut])

    assert found == batches()[: sum(end <= cut for end in ends[1:])]
    assert (reason is None) == (cut in ends)
    assert reason is None or "byte" in reason


@given(st.data())
def test_damage_costs_what_it_is_in(data: st.DataObject) -> None:
    """A changed byte anywhere costs at most its own batch, and the batches after it are read."""
    starts = [len(written(*batches(count))) for count in range(4)]
    whole = written(*batches())
    place = data.draw(st.integers(starts[0], len(whole) - 1))
    hit = sum(start <= place for start in starts[1:])
    changed = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]

    found, reason = entries(changed)

    in_head = place - starts[hit] < bundle.HEADER_BYTES
    assert [one for one in found if one.sequence != 7 + hit] == [one for n, one in enumerate(batches()) if n != hit]
    assert (reason is not None) == in_head
    assert len(found) == 3 - in_head


@pytest.mark.system
@given(st.data())
def test_what_follows_a_hole_is_read(data: st.DataObject) -> None:
    """Where bytes are gone from the middle, what is whole after the next head is read, and the loss is reported."""
    whole = written(*batches(6))
    starts = [len(written(*batches(count))) for count in range(7)]
    begin = data.draw(st.integers(starts[1], starts[2] - 1))
    end = data.draw(st.integers(begin + 1, min(begin + 40, starts[3])))

    found, reason = entries(whole[:begin] + whole[end:])

    assert [one for one in found if one.sequence in (7, 11, 12)] == [batches(6)[n] for n in (0, 4, 5)]
    assert reason or found == [one for one in batches(6) if one.sequence != 8]


@pytest.mark.system
def test_a_hostile_bundle_is_scanned_once() -> None:
    """Eight megabytes that look like the beginnings of entries are refused in the time of one look at each."""
    began = time.process_time()

    found, reason = entries(bundle.MAGIC + b"BTCH" * (2 << 20))

    assert found == []
    assert reason is not None
    assert in_time(time.process_time() - began, 20)


def test_an_incidents_bundle_has_its_verdicts(tmp_path: Path) -> None:
    """The manifest names the incident, and each published version comes back with the bytes of its document."""
    data = b"".join(bundle.write(INCIDENT, [*VERDICTS, *batches()]))

    manifest, *rest = bundle.read(BytesIO(data))

    assert manifest == INCIDENT
    assert rest == [*VERDICTS, *batches()]
    assert [record.code for record in read(tmp_path, data) if isinstance(record, KernelEvent)] == [0, 1, 2]


@pytest.mark.parametrize("place", [4, 40, -1])
def test_a_changed_verdict_is_not_believed(place: int) -> None:
    """A verdict's entry with one changed byte is reported as damage; the other versions and the batches are there."""
    begins = len(b"".join(bundle.write(INCIDENT, [])))
    ends = len(b"".join(bundle.write(INCIDENT, VERDICTS[:1])))
    data = bytearray(b"".join(bundle.write(INCIDENT, [*VERDICTS, *batches()])))
    data[begins + bundle.HEADER_BYTES + place if place >= 0 else ends - 1] ^= 1

    manifest, damage, *rest = bundle.read(BytesIO(bytes(data)))

    assert manifest == INCIDENT
    assert isinstance(damage, Damage)
    assert "not what was written" in damage.reason
    assert rest == [*VERDICTS[1:], *batches()]


def test_a_changed_manifest_is_not_believed() -> None:
    """One changed letter of the job's name is damage, and not another job."""
    data = bytearray(written(*batches()))
    data[data.index(b"llama")] ^= 1

    damage, *rest = bundle.read(BytesIO(bytes(data)))

    assert isinstance(damage, Damage)
    assert "manifest" in damage.reason
    assert rest == batches()


def test_a_fleets_bundle_has_every_jobs_records(tmp_path: Path) -> None:
    """The bundle of an incident that is of no job gives the records of all jobs."""
    both = [LogEvent(event="oom", job="llama"), LogEvent(event="oom", job="mixtral")]

    found = read(tmp_path, written(Batch(1, AT, block.encode(both)), job=""))

    assert [record.job for record in found] == ["llama", "mixtral"]


@pytest.mark.parametrize("name", ["bundle_v1", "incident_v1"])
def test_the_first_format_is_read(name: str, rewrite: bool) -> None:
    """Bundles that the first version wrote, of a span and of an incident, are read as what was put into them."""
    path = GOLDEN / f"{name}.fhz"
    manifest = INCIDENT if name == "incident_v1" else Manifest(job="llama", since=AT, until=AT + 60, nodes=("gpu-1",))
    verdicts = VERDICTS if name == "incident_v1" else []
    if rewrite:
        path.write_bytes(b"".join(bundle.write(manifest, [*verdicts, *batches()])))

    first, *rest = bundle.read(BytesIO(path.read_bytes()))
    found = [block.decode(entry.block) for entry in rest if isinstance(entry, Batch)]

    assert first == manifest
    assert [entry for entry in rest if isinstance(entry, Published)] == verdicts
    assert found == [block.decode(batch.block) for batch in batches()]


@given(st.binary(min_size=1, max_size=200))
def test_garbage_is_damage(garbage: bytes) -> None:
    """Random bytes after the magic are refused with an offset, never believed, never a crash."""
    found, reason = entries(bundle.MAGIC + garbage)

    assert found == []
    assert reason is not None
    assert "byte" in reason


def test_what_retention_removed_is_told(tmp_path: Path) -> None:
    """The manifest's gaps appear among the records, so that a verdict can say what it had to do without."""
    data = b"".join(bundle.write(Manifest(job="llama", missing=("nothing before 12:00",)), []))

    (gap,) = read(tmp_path, data)

    assert isinstance(gap, Unread)
    assert gap.reason == "nothing before 12:00"
