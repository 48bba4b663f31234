"""Files that lenity ships for its demo model; how each was made stands beside it."""
