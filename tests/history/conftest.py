"""Puts this folder's helpers on sys.path."""

from postgres import postgres_server, postgres_url, url  # noqa: F401  # pytest finds fixtures by their names here
