"""The arguments that several subcommands share."""

from __future__ import annotations

import argparse


def add_storage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--storage",
        metavar="DIR",
        help="folder of the saved runs. Default: the nearest .benchmarks in this folder or above it",
    )
