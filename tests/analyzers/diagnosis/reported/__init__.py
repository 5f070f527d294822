"""Excerpts as reporters paste them, with what a verdict on each may say."""
