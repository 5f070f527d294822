"""Effective training time by discrete-event simulation: what diagnosis and remediation make of published fault mixes.

Everything that decides is the product's (step, guards, plan, ladder, conviction, standbys, dual-phase replay); everything
that happens is made up from published counts. What comes out is a simulation's number, and never to be read as a fleet's.
"""
