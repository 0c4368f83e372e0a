"""Saved runs: how they are kept, read, named and chosen, and what became of their metrics over time.

Whether one is worse than another is the gate's business.
"""
