"""Errors for people: a message that states what is wrong, the value, the bound and the next step."""

from __future__ import annotations


class UserError(Exception):
    """A person has to correct something: an option, a file, a setting."""
