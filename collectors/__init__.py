"""What runs on nodes and what reads files: raw evidence in, records out."""
