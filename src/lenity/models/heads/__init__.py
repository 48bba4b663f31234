"""Heads: trained weights attached to a target's features, read from their published formats."""
