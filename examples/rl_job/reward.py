"""The reward: scores answers."""

from __future__ import annotations

import task
import wire
from serving import Serving


def main() -> None:
    """Serve until the job ends."""
    serving = Serving()

    def score(request: wire.Message, _data: bytes) -> tuple[wire.Message, bytes]:
        with serving.request():
            return {"rewards": [task.reward(request["prompt"], answer) for answer in request["answers"]]}, b""

    address, _server = wire.serve(score)
    serving.run("reward", {"score": address})


if __name__ == "__main__":
    main()
