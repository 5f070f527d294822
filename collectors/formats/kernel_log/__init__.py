"""Kernel logs in all their prefixes, and what their lines report."""
