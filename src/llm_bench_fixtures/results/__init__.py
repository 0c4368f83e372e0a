"""What a run measured, as plain values, and what is computed from one run alone: metrics, table, noise.

No sentence about a run is written here, and no other run is looked at.
"""
