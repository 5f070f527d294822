"""What several collectors read: /proc, NVML, sockets, growing files. No collector is here."""
