"""Simulated incidents as folders of files beside their labels, which `faulthound evaluate` reads (docs/evaluate.md)."""
