"""NCCL's RAS reports and its Inspector's files."""
