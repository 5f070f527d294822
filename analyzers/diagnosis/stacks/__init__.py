"""Stacks: which ranks stand outside communication while the others wait in it."""

READS = ("stacks",)
