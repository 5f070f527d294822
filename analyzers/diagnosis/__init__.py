"""One analyzer a file, or a folder where it is large: each registers itself, and claims what its kind of evidence shows."""
