"""Which models and variants there are, and how one is found, loaded and run: here or in a process of its own.

Nothing is timed, counted or scored here.
"""
