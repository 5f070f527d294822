"""Traces of torch.profiler (Kineto), in Chrome's format: what each rank ran in each step."""
