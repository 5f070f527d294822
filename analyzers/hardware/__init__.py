"""What the kernel logs prove about devices, links and hosts: see ``analysis``, which registers the analyzer."""

from analyzers.hardware.analysis import analyze

__all__ = ["analyze"]
