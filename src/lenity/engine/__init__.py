"""The decoding loop: propose, score, verify, commit, record."""
