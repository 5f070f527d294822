"""A verdict and an incident in words: text, HTML, timelines, rank maps. Pure; what to say is here, what is true is not."""
