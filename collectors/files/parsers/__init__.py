"""What runs in the process that parses for the agent, one module a source: ``parse`` gets bytes and gives plain values.

Records come back as blocks. No module here is imported by the agent's own process, which would load the formats.
"""
