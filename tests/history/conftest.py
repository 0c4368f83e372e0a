"""Puts this folder's helpers on sys.path."""
