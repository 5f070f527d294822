"""Slurm: a scheduler adapter that drains nodes and has jobs run again."""
