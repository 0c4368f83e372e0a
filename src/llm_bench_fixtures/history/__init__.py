"""Saved runs: how they are kept, read, named and chosen, and how their metrics changed from run to run.

The gate tells whether one run is worse than another.
"""
