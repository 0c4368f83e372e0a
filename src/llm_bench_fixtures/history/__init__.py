"""Saved runs: finding them, comparing them, judging a run by another, and what became of the numbers over commits."""
