"""From findings to the one verdict: roots, excuses, the gate before an eviction, the action, the document.

Analyzers are in ``analyzers/diagnosis``; when to judge is decided in ``analyzers/incidents``.
"""
