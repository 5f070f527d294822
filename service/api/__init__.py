"""The REST interface: one resource a file."""
