"""Scalar twins: the rules once more, one token at a time, in plain Python and float64.

Each follows the scalar loop its rule states and shares no code with it. No tensors in here.
"""
