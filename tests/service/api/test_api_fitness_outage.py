"""A node that was named before an outage was known to explain its job's standstill."""

from __future__ import annotations

from pathlib import Path

from service.store.models import Incident
from tests.service.api.test_api_fitness import ID, eventually, of, reporting
from tests.support.incident_rows import seed
from tests.support.served import served

OUTAGE = "inc-aaaaaaaaaaaa"


def test_who_was_named_is_fit_while_an_outage_explains_it(tmp_path: Path) -> None:
    """The verdict that would take it out waits with its incident, and holds again when nothing else explains the hang."""
    with served(tmp_path) as client:
        reporting(client)
        seed(client.service.database)
        seed(client.service.database, OUTAGE, job=None, verdicts=[], kind="infrastructure")
        for into, expected in ((OUTAGE, "fit"), (None, "unfit")):
            with client.service.database.transaction() as session:
                row = session.get(Incident, ID)
                assert row is not None
                row.merged_into = into
            eventually(lambda expected=expected: of(client, "gpu-0002")["fitness"] == expected)  # type: ignore[misc]
