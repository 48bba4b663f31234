"""Relaxed speculative decoding, accountable for what it gives away."""
