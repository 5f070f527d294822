"""The reward: scores answers."""

from __future__ import annotations

import threading

import faulthound_roles
import task
import wire


def score(request: wire.Message, _data: bytes) -> tuple[wire.Message, bytes]:
    """Return what each answer to a prompt is worth."""
    return {"rewards": [task.reward(request["prompt"], answer) for answer in request["answers"]]}, b""


def main() -> None:
    """Serve for ever."""
    address, _server = wire.serve(score)
    faulthound_roles.join("reward", "0", {"score": address}, phase="serve", lost=faulthound_roles.end_process)
    threading.Event().wait()


if __name__ == "__main__":
    main()
