"""Samples of the last minutes, in memory and on disk, ready to be computed on."""
