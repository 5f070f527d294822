"""Stacks and process tables: py-spy, faulthandler, gdb, ps."""
