"""What people read of runs, comparisons and histories: findings, tables and words, then one writer a format.

Nothing is measured or judged here.
"""
