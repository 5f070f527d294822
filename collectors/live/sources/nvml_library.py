"""NVML, the GPU driver's library, loaded late and called for one value at a time: a failed call loses only its value."""

from __future__ import annotations

import ctypes
import importlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from collectors.live import NothingToCollect

# Return codes whose meaning goes beyond the one call; nvml.h, enum nvmlReturn_t.
UNINITIALIZED, NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 1, 4, 9, 12, 13
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 15, 16, 18
ABSENT = {
    LIBRARY_NOT_FOUND: "there is no libnvidia-ml.so.1 on this node: no NVIDIA driver",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    VERSION_MISMATCH: "libnvidia-ml and the loaded driver are of different versions: reload the driver",
}
LOST_ANSWERS = 2  # calls that must report it before a GPU counts as lost: drivers answer some calls wrongly from memory
NOT_AVAILABLE = frozenset(((1 << 32) - 1, (1 << 64) - 1))  # NVML's own "no value", unsigned int and unsigned long long
MOST = (1 << 63) - 1  # what a counter's column can hold


class Nvml:
    """The library, initialised. ``api`` is the ``pynvml`` module of nvidia-ml-py."""

    def __init__(self, library: str | None = None) -> None:
        """Load and initialise; ``library`` names the file where the system would not find it.

        Raises ``NothingToCollect`` where there is no driver, ``RuntimeError`` where there is one that does not start.
        """
        try:
            self.api: Any = importlib.import_module("pynvml")
        except ImportError as error:
            raise NothingToCollect("nvidia-ml-py is not installed: pip install nvidia-ml-py") from error
        if library is not None:
            _preload(library)
        try:
            self.api.nvmlInit()
        except self.api.NVMLError as error:
            if error.value in ABSENT:
                raise NothingToCollect(ABSENT[error.value]) from error
            raise RuntimeError(f"NVML does not start: {self.words(error.value)}: see `nvidia-smi` here") from error

    def words(self, code: int) -> str:
        """Return the library's text for an error, with its number."""
        return f"{self.api.NVMLError(code)} ({code})"

    def count(self) -> int:
        """Return how many GPUs the driver enumerates, lost ones included."""
        return int(self.api.nvmlDeviceGetCount())

    def system(self, function: str) -> Any | None:
        """Return the value of a call without a device, None where it fails."""
        with suppress(self.api.NVMLError, AttributeError, ValueError):
            return getattr(self.api, function)()
        return None

    def constant(self, name: str) -> int | None:
        """Return one of the library's constants, None where the bindings are older than it."""
        found = getattr(self.api, name, None)
        return None if found is None else int(found)

    def close(self) -> None:
        """Close the driver's library, as far as it still answers."""
        with suppress(self.api.NVMLError):
            self.api.nvmlShutdown()


def _preload(library: str) -> None:
    """Load the file first: the bindings then find it by its soname, whatever its folder."""
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise NothingToCollect(f"option library of gpu: {error}") from error


@dataclass(slots=True)
class DeviceCalls:
    """The calls of one run to one GPU, and the state that their failures show."""

    nvml: Nvml
    index: int
    handle: Any = None
    answered: int = 0
    errors: Counter[int] = field(default_factory=Counter)

    def open(self) -> None:
        """Get the handle, unless it is known from an earlier run."""
        if self.handle is None:
            try:
                self.handle = self.nvml.api.nvmlDeviceGetHandleByIndex(self.index)
            except self.nvml.api.NVMLError as error:
                # Without a handle no second call is possible: this one decides.
                self.errors[error.value] += LOST_ANSWERS

    def call(self, function: str, *arguments: Any) -> Any | None:
        """Return a call's value, None where it fails or the GPU is lost."""
        found = getattr(self.nvml.api, function, None)
        if found is None or self.handle is None or self.lost:
            return None
        try:
            value = found(self.handle, *arguments)
        except self.nvml.api.NVMLError as error:
            self.errors[error.value] += 1
            return None
        except ValueError:  # text that is not UTF-8
            return None
        self.answered += 1
        return value

    def number(self, function: str, *arguments: Any) -> int | None:
        """Return a call's number, None where it fails or is "not available"."""
        return number(self.call(function, *arguments))

    def fields(self, fields: Iterable[tuple[str, int]]) -> dict[str, int | None]:
        """Return the values of many NVML fields in one call, by (constant's name, scope: a link or 0)."""
        wanted = [(name, scope, found) for name, scope in fields if (found := self.nvml.constant(name)) is not None]
        values = self.call("nvmlDeviceGetFieldValues", [(id, scope) for _, scope, id in wanted])
        if values is None:
            return {}
        return {name: _field(value) for (name, _, _), value in zip(wanted, values, strict=True)}

    @property
    def lost(self) -> bool:
        """Whether enough calls reported that the GPU is lost."""
        return self.errors[GPU_IS_LOST] >= LOST_ANSWERS

    def state(self) -> tuple[str, str]:
        """Return the GPU's state, as a ``DeviceState.state`` and in the library's words."""
        if self.lost:
            return "lost", self.nvml.words(GPU_IS_LOST)
        if self.errors[RESET_REQUIRED]:
            return "reset_required", self.nvml.words(RESET_REQUIRED)
        if self.answered:
            return "ok", ""
        code = max(self.errors, key=self.errors.__getitem__, default=FUNCTION_NOT_FOUND)
        return "no_permission" if code == NO_PERMISSION else "unreadable", self.nvml.words(code)


def number(value: Any) -> int | None:
    """Return an integer that a counter's column can hold, None for NVML's "not available"."""
    if not isinstance(value, int) or value in NOT_AVAILABLE or not -MOST <= value <= MOST:
        return None
    return value


_OF_TYPE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # nvmlValueType_t


def _field(value: Any) -> int | None:
    if value.nvmlReturn != 0 or not 0 <= value.valueType < len(_OF_TYPE):
        return None
    read = getattr(value.value, _OF_TYPE[value.valueType])
    # A double may be NaN or infinite.
    return number(int(read) if isinstance(read, float) and abs(read) < MOST else read)
