"""The service, the command line, and the renderings of a verdict. What a verdict says is decided in ``analyzers``."""
