"""What analyzers compute on and what they answer with: window, topology, tables, findings, the verdict, the incident."""
