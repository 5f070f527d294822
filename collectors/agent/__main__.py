"""``python -m collectors.agent``: the console script ``faulthound-agent`` where it is not installed."""

from collectors.agent import main
from faulthound import import_msgspec

if __name__ == "__main__":
    import_msgspec()
    main()
