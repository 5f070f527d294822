"""A bundle gives back what the service received, when, and only of its job; what is damaged is named."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from collectors import block, bundle
from collectors.bundle import Batch, Manifest
from collectors.reading import read_file
from collectors.records import KernelEvent, LogEvent, Record, Unread

AT = 1_763_700_000.0


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
    return read_file(path)


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
    found: list[Batch] = []
    try:
        for entry in bundle.read(BytesIO(data)):
            found += [entry] if isinstance(entry, Batch) else []
    except bundle.Damaged as error:
        return found, str(error)
    return found, None


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
