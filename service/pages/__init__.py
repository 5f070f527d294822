"""Pages for people: what goes on now, and one incident. Rendered here, without scripts; each has a twin in JSON."""
