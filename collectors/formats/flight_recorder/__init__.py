"""PyTorch's flight recorder, as pickle and as JSON: a document becomes one record with columns."""
