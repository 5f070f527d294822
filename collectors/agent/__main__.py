"""``python -m collectors.agent``: the console script where none is installed."""

from collectors.agent import main

if __name__ == "__main__":
    main()
