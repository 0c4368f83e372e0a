"""The options: how each is typed and explained, and the frozen settings that are parsed from them.

What an option does stands where it is read.
"""
