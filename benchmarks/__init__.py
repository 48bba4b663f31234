"""Measurements of lenity's own costs; each runs its arms in one process and prints ratios."""
