"""How the example moves weights: over TCP, and over UCX where NIXL is installed; the receiver gets the newest, to the bit."""

from __future__ import annotations

import sys
from importlib import import_module, util
from typing import Any

import pytest

from tests.support.needs import needs_torch
from tests.support.served import REPOSITORY

needs_torch("weights cannot be moved")

pytestmark = pytest.mark.system


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the example's module, as its processes import it."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples" / "rl_job"))
    yield import_module("weights")
    for name in ("weights", "wire"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("over", ["tcp", "ucx"])
def test_the_newest_weights_arrive_to_the_bit(weights: Any, over: str) -> None:
    """A receiver gets what was published last, whichever way it comes."""
    import torch

    if over == "ucx" and util.find_spec("nixl") is None:
        pytest.skip("NIXL is not installed: `pip install --no-deps nixl nixl-cu12`")
    sender = weights.TcpSender() if over == "tcp" else weights.NixlSender("sender")
    receiver = weights.Receiver("receiver")
    with pytest.raises(weights.wire.Denied, match="no weights yet"):
        receiver.fetch(sender.address)
    for version in range(4):
        values = torch.randn(50_000)
        sender.publish(version, values)
        assert (found := receiver.fetch(sender.address))[0] == version
        assert torch.equal(found[1], values)
