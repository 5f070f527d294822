"""Hardware: faulty devices, links and hosts, from kernel logs and the GPU library."""

READS = ("kernel_event", "device_state")
