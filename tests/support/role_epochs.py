"""Epochs and versions that a directory counts from 1, as if time had just begun, so that a test may state them."""

from __future__ import annotations

import pytest

from service.roles import repository


@pytest.fixture
def epochs_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each directory of this process begin at 0."""
    monkeypatch.setattr(repository, "COUNTED_A_SECOND", 0)
