"""NCCL RAS: processes it lost, and ranks behind their communicator."""

READS = ("ras_communicator", "ras_peer_dead")
