"""The engines that run models, one file each, with all that is particular to an engine.

What engines have in common stands in `models`.
"""
