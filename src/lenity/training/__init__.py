"""Training of drafters against a frozen target."""
