"""The service as a process: the web server, its log, and when Python collects garbage. Not what it serves."""
