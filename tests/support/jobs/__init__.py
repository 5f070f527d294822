"""Real torch.distributed jobs over gloo, real faults in them, and the files an engineer would be left with."""
