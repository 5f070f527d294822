"""Remediation, stored and driven: repository, proposer, verification, outcomes. ``analyzers.remediation`` decides. No HTTP."""
