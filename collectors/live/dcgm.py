"""GPUs by dcgm-exporter, where it runs on the node: tensor activity and other values that NVML does not have."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from collectors.files.apart import ParsingFailed
from collectors.live import NothingToCollect, Readings, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.listeners import ForeignListener, owners
from collectors.records import Record, block

URL = "http://127.0.0.1:9400/metrics"
TIMEOUT_SECONDS = 5.0  # for the whole answer
PARSING_SECONDS = 4.0  # beyond the exporter's own time
DEVICES_SECONDS = 3600.0
FIRST_USER = 1000  # below are a system's own
NOT_LISTENING = "no process listens at"


@collector(
    "dcgm",
    gives="GPUs by dcgm-exporter: tensor and memory activity, PCIe and NVLink traffic, and its configured metrics",
    every_seconds=30.0,  # the exporter itself asks the GPUs every 30 seconds
    limit_seconds=10.0,
)
class DcgmCollector:
    """Scrapes the exporter at every run; keeps only the GPUs that it has reported."""

    def __init__(self, host: Host) -> None:
        """Take the options."""
        self._clock, self._apart = host.clock, host.apart
        self._url = host.option("dcgm", "url", URL)
        self._named = "url" in host.options.get("dcgm", {})
        self._timeout_seconds = host.option("dcgm", "timeout_seconds", TIMEOUT_SECONDS)
        self._reported: tuple[Record, ...] = ()
        self._reported_at = float("-inf")

    def __call__(self, _request: Request | None) -> Iterator[Yielded]:
        """Yield the values of one scrape, and the GPUs' names at the start, on change and hourly."""
        now = self._clock.monotonic()
        found, tables = self._asked()
        if not tables:
            raise NothingToCollect(f"{self._url} answers, and none of its metrics is DCGM's")
        # The exporter may give its pod's name as the node's: the agent fills in its own.
        devices = tuple(msgspec.structs.replace(device, node=None, source=self._url) for device in block.decode(found))
        if devices != self._reported or now - self._reported_at >= DEVICES_SECONDS:
            self._reported, self._reported_at = devices, now
            yield from devices
        for type, cells, metrics, rows in tables:
            if cells:
                yield Readings("dcgm", cells, metrics, rows, type)

    def _asked(self) -> Any:
        address = urlsplit(self._url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"option url of dcgm is {self._url!r}: give one like {URL}")
        if not self._named:
            self._refuse_users(address.port or 80)
        seconds = self._timeout_seconds + PARSING_SECONDS
        try:
            found = self._apart.parse("dcgm", self._url, self._timeout_seconds, seconds=seconds, source=self._url)
        except ParsingFailed as error:
            raise OSError(str(error)) from error
        if found is None:
            raise NothingToCollect(f"{NOT_LISTENING} {self._url}: no dcgm-exporter on this node")
        return found

    def _refuse_users(self, port: int) -> None:
        """Ask a system's service alone, unless the configuration names the address; start no process where no process listens."""
        found = owners(port)
        if strangers := {user for user in found if user >= FIRST_USER and user != os.geteuid()}:
            who = f"user {min(strangers)}, who is no system user, listens at {self._url}"
            raise ForeignListener(
                f"not asked: {who}: where that is dcgm-exporter, set option url of dcgm to this address"
            )
        if not found:
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
            except OSError as error:
                raise NothingToCollect(f"{NOT_LISTENING} {self._url}: no dcgm-exporter on this node") from error
