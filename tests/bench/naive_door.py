"""The control: what one would write first. Pydantic rows, a table with a row a value, a commit a request.

python -m tests.bench.naive_door FOLDER PORT
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Response
from pydantic import BaseModel


class Row(BaseModel):
    """One value."""

    node: str
    at: float
    device: str
    metric: str
    value: float


def application(folder: Path) -> FastAPI:
    """Return the door; SQLite is set up as the store's, so that both promise the same."""
    database = sqlite3.connect(folder / "rows.db", check_same_thread=False)
    database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
    database.execute(
        "CREATE TABLE rows (node TEXT, device TEXT, metric TEXT, at REAL, value REAL,"
        " PRIMARY KEY (node, device, metric, at)) WITHOUT ROWID"
    )
    lock, app = threading.Lock(), FastAPI()

    @app.post("/rows")
    def take(rows: list[Row]) -> Response:
        values = [(row.node, row.device, row.metric, row.at, row.value) for row in rows]
        with lock, database:
            database.executemany("INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?, ?)", values)
        return Response(status_code=202)

    return app


if __name__ == "__main__":
    uvicorn.run(application(Path(sys.argv[1])), port=int(sys.argv[2]), log_level="warning", timeout_keep_alive=60)
