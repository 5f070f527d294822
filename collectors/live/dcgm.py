"""GPUs by dcgm-exporter, where it runs on the node: tensor activity and other values that NVML does not have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

import msgspec

from collectors.formats.dcgm.dcgm_text import gather
from collectors.formats.series_table import Table
from collectors.live import NothingToCollect, Readings, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.records import Device

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

URL = "http://127.0.0.1:9400/metrics"
TIMEOUT_SECONDS = 5.0  # for the whole answer
BODY_BYTES = 8 << 20  # eight GPUs with all metrics on give some 200 KB
CHUNK_BYTES = 1 << 16
DEVICES_SECONDS = 3600.0


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
        self._clock = host.clock
        self._url = host.option("dcgm", "url", URL)
        self._timeout_seconds = host.option("dcgm", "timeout_seconds", TIMEOUT_SECONDS)
        self._reported: tuple[Device, ...] = ()
        self._reported_at = float("-inf")

    def __call__(self, _request: Request | None) -> Iterator[Yielded]:
        """Yield the values of one scrape, and the GPUs' names at the start, on change and hourly."""
        now = self._clock.monotonic()
        body = scrape(self._url, self._timeout_seconds)
        series = gather(body.decode(errors="replace").split("\n"))
        if not series.tables:
            raise NothingToCollect(f"{self._url} answers, and none of its metrics is DCGM's")
        # The exporter may give its pod's name as the node's: the agent fills in its own.
        devices = tuple(msgspec.structs.replace(device, node=None, source=self._url) for device in series.devices)
        if devices != self._reported or now - self._reported_at >= DEVICES_SECONDS:
            self._reported, self._reported_at = devices, now
            yield from devices
        yield from (_readings(table) for table in series.tables if table.cells)


def _readings(table: Table) -> Readings:
    return Readings("dcgm", tuple(table.cells), tuple(table.metrics), list(table.rows()), table.type)


def scrape(url: str, timeout_seconds: float) -> bytes:
    """Return the exporter's answer; raise NothingToCollect where no process listens, OSError where it fails."""
    from http.client import HTTPException  # imports the TLS library, which few processes need

    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ValueError(f"option url of dcgm is {url!r}: give one like {URL}")
    deadline = time.monotonic() + timeout_seconds
    connection = _connection(address, timeout_seconds)
    try:
        connection.request("GET", address.path or "/", headers={"Accept": "text/plain"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"{url} answers {answer.status} {answer.reason[:100]}, not 200")
        return _body(answer, url, deadline)
    except ConnectionRefusedError as error:
        raise NothingToCollect(f"no process listens at {url}: no dcgm-exporter on this node") from error
    except HTTPException as error:
        raise OSError(f"{url} answers no HTTP: {type(error).__name__}") from error
    finally:
        connection.close()


def _connection(address: SplitResult, timeout_seconds: float) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    make = HTTPSConnection if address.scheme == "https" else HTTPConnection
    return make(address.hostname or "", address.port, timeout=timeout_seconds)


def _body(answer: HTTPResponse, url: str, deadline: float) -> bytes:
    body = bytearray()
    while chunk := answer.read1(CHUNK_BYTES):
        body += chunk
        if len(body) > BODY_BYTES:
            raise OSError(f"{url} answers with more than {BODY_BYTES:,} bytes: let it export fewer metrics")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{url} has not ended its answer in time: raise option timeout_seconds of dcgm")
    if answer.length:
        raise OSError(f"{url} ended its answer {answer.length:,} bytes early")
    return bytes(body)
