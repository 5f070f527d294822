"""What the kernel logs prove about devices, links and hosts: see ``analysis``, which registers the analyzer."""

from analyzers.diagnosis.hardware.hardware import analyze

__all__ = ["analyze"]
