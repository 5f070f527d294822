"""What ``faulthound serve`` starts; its settings are its environment."""

from __future__ import annotations

import sys

from service.engine.process import run
from service.logs import write_logs
from service.settings import load

if __name__ == "__main__":
    settings = load()
    write_logs(settings)
    run(settings, sys.argv[1])
