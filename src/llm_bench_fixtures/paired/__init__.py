"""Two versions measured in turns: their processes, the statistics over pairs of processes, and the result.

How a result is shown is decided in report/.
"""
