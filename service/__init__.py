"""The command line, the renderings of a verdict and, later, the HTTP service."""
