"""dcgm-exporter's metrics."""
