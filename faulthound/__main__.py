"""``python -m faulthound``: the command line where its console script is not on PATH."""

from faulthound import main

if __name__ == "__main__":
    main()
