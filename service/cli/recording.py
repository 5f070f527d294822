"""A bundle as ``replay`` needs it: what it is of, the verdicts that were published, and its batches in the log's order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from analyzers.incidents.messages import Declared, Received
from analyzers.model.incident import Cut
from collectors.records import Placement, Record, block, bundle
from collectors.records.record import Damaged
from service.cli.speech import Progress
from service.client import UserError


@dataclass(slots=True)
class Recording:
    """A bundle's content but for its batches, which ``batches`` reads anew. ``damage``: what could not be read, in words."""

    path: Path
    manifest: bundle.Manifest | None = None
    published: dict[int, bundle.Published] = field(default_factory=dict)
    context: list[Record] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    count: int = 0  # of batches
    first_at: float | None = None

    @classmethod
    def opened(cls, path: Path) -> Recording:
        """Read all but the batches; raise ``UserError`` for what is no bundle."""
        recording = cls(path)
        for entry in _entries(path):
            recording._take(entry)
        if recording.manifest is None and not recording.published and not recording.count:
            raise UserError(
                f"{path} holds nothing that can be read: {recording.damage[0] if recording.damage else 'it is empty'}"
            )
        return recording

    def _take(self, entry: bundle.Entry) -> None:
        if isinstance(entry, bundle.Manifest):
            self.manifest = entry
        elif isinstance(entry, bundle.Published):
            self.published[entry.version] = entry
        elif isinstance(entry, bundle.Damage):
            self.damage.append(entry.reason)
        elif entry.sequence == 0:
            self.context += self._records(entry)
        else:
            self.count += 1
            self.first_at = entry.received_at if self.first_at is None else min(self.first_at, entry.received_at)

    def cuts(self) -> dict[int, Cut]:
        """Return where each version was judged: from the verdicts, and from the manifest for those that are lost."""
        cuts = self.manifest.incident.cuts if self.manifest is not None and self.manifest.incident is not None else ()
        raw = dict(enumerate(cuts, 1)) | {version: one.cut for version, one in self.published.items()}
        found: dict[int, Cut] = {}
        for version, cut in sorted(raw.items()):
            try:
                found[version] = msgspec.convert(cut, Cut)
            except msgspec.ValidationError as error:
                self.damage.append(f"what version {version} was judged from cannot be understood: {error}")
        return found

    def declared(self) -> Iterator[Declared]:
        """Yield what the scheduler said of the job: an export of it leads with the rank map as a placement."""
        for record in self.context:
            if isinstance(record, Placement) and record.source == bundle.DECLARATION and record.job and record.nodes:
                yield Declared(job=record.job, attempt=record.attempt or 0, nodes=record.nodes, version=1)

    def batches(self, progress: Progress | None, until: float = float("inf")) -> Iterator[Received]:
        """Yield the batches that were received until then; a damaged one is reported and left out."""
        done = 0
        for entry in _entries(self.path):
            if not isinstance(entry, bundle.Batch) or entry.sequence == 0 or entry.received_at > until:
                continue
            records = tuple(self._records(entry))
            node = entry.node or next((record.node for record in records if record.node), "")
            if records:
                yield Received(
                    sequence=entry.sequence, received_at=entry.received_at, node=node, records=records, sent_at=entry.sent_at
                )  # fmt: skip
            done += 1
            if progress is not None:
                progress(done, self.count)

    def _records(self, entry: bundle.Batch) -> list[Record]:
        try:
            decoded = block.decode_counting(entry.block)
        except Damaged as error:
            self._note_damage(f"batch {entry.sequence}: {error}")
            return []
        for reason in decoded.left_out():
            self._note_damage(f"batch {entry.sequence}: {reason}")
        return decoded.records

    def _note_damage(self, reason: str) -> None:
        if reason not in self.damage:
            self.damage.append(reason)


def _entries(path: Path) -> Iterator[bundle.Entry]:
    try:
        with path.open("rb") as stream:
            yield from bundle.read(stream)
    except Damaged as error:
        raise UserError(f"{path}: {error}; `faulthound diagnose {path}` reads other files") from None
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror or error}): name a bundle of `faulthound incidents export ID FILE`"
        ) from None
