"""What is done inside Ray, by a Python that has it: a program of its own, of which Faulthound imports nothing.

It reads one JSON object from stdin and prints one as its last line. ``do``: actors (the named actors of the namespace), kill (an
actor; Ray starts it again where its max_restarts allow it), end (for good), hook (the job's own restart_role).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

HOOK_SECONDS = 12.0


def actors(ray: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the named actors of the namespace: name → state, pid and restarts."""
    here = {
        one["name"] for one in ray.util.list_named_actors(all_namespaces=True) if one["namespace"] == asked["namespace"]
    }
    rows = _table(ray, asked["namespace"])
    found = {row["name"]: row for row in sorted(rows, key=lambda row: row["state"] == "ALIVE") if row["name"] in here}
    return {"actors": found}


def _table(ray: Any, namespace: str) -> list[dict[str, Any]]:
    """Read the State API, the namespace's rows alone; without a dashboard, the table behind it."""
    try:
        from ray.util.state import list_actors  # type: ignore[import-not-found,unused-ignore]

        listed = list_actors(detail=True, limit=10_000, timeout=5)
        return [
            {"name": one["name"], "state": one["state"], "pid": one["pid"], "restarts": int(one["num_restarts"] or 0)}
            for one in listed
            if one["ray_namespace"] == namespace
        ]
    except Exception:  # noqa: BLE001 every version has another error for a dashboard that is not there
        table = ray._private.state.actors().values()
        return [
            {"name": one["Name"], "state": one["State"], "pid": one["Pid"], "restarts": one["NumRestarts"]}
            for one in table
            if one.get("RayNamespace", namespace) == namespace
        ]


def kill(ray: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """End an actor's process; Ray starts it again under the same name where its max_restarts allow it."""
    ray.kill(ray.get_actor(asked["actor"], asked["namespace"]), no_restart=asked["do"] == "end")
    return {}


def hook(ray: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Let the job's own actor restart the role."""
    owner = ray.get_actor(asked["hook"], asked["namespace"])
    return {"said": str(ray.get(owner.restart_role.remote(**asked["restart"]), timeout=HOOK_SECONDS))[:500]}


def main() -> int:
    """Answer one request."""
    asked = json.load(sys.stdin)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray  # type: ignore[import-not-found,unused-ignore]

    try:
        ray.init(address=asked["address"], namespace=asked["namespace"], log_to_driver=False, logging_level="ERROR")
        answer = {"actors": actors, "kill": kill, "end": kill, "hook": hook}[asked["do"]](ray, asked)
    except Exception as error:  # noqa: BLE001 whatever it is, it is the answer
        answer = {"problem": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    print("\n" + json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
