"""One detector a file: what a job shows when something is wrong (``analyzers/watch/detectors.py``)."""
