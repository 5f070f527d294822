"""Measurements that `make bench` runs; each writes one JSON document with its command, commit and machine."""
