"""Tune, freeze, audit: runs on disk, their counters and intervals, and the report."""
