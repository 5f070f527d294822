"""What analyzers compute on and answer with: window, topology, tables, findings, fault classes, verdict, incident.

No analyzer and no rule of the verdict: those are in ``analyzers/diagnosis`` and ``analyzers/verdict``.
"""
