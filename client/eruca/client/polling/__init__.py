"""Consuming by asking: the lite pull consumer, single pulls, and pulls on schedule."""
