"""``python -m collectors.agent``: the console script ``faulthound-agent`` where it is not installed."""

from collectors.agent import main

if __name__ == "__main__":
    main()
