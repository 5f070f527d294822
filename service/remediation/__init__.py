"""Remediation as it is stored and driven: the repository, proposals, verification, what outcomes teach."""
