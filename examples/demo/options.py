"""The demo's command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KILLABLE: Final = ("relay", "worker", "broker")


@dataclass(frozen=True)
class Options:
    """What was asked for. ``orders`` None: until Ctrl-C."""

    orders: int | None
    exit: bool
    json: bool
    kill: tuple[str, ...]
    orders_per_second: float
    deadline_seconds: float
    folder: Path


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line; exits 2 with the reason when it can't be understood."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Runs the whole system on this machine, with a shop that sends mail through it.",
    )
    parser.add_argument("--orders", type=int, metavar="N", help="take N orders; else the shop goes on until Ctrl-C")
    parser.add_argument(
        "--exit", action="store_true", help="end when every mail is SENT or FAILED; exit 1 if anything is wrong"
    )
    parser.add_argument("--json", action="store_true", help="print the outcome as one JSON object on the last line")
    parser.add_argument(
        "--kill",
        action="append",
        choices=KILLABLE,
        default=[],
        help="kill -9 it in the middle; may be given several times",
    )
    parser.add_argument("--rate", type=float, metavar="R", help="orders per second (2; with --exit 25)")
    parser.add_argument(
        "--deadline", type=float, default=120, metavar="S", help="with --exit: give up after so many seconds"
    )
    parser.add_argument("--folder", type=Path, default=Path(".state/demo"), help="data and logs (.state/demo)")
    given = parser.parse_args(arguments)
    if given.exit and given.orders is None:
        parser.error("--exit needs --orders N: without a number the shop never ends")
    if given.orders is not None and given.orders < 1:
        parser.error("--orders must be 1 or more")
    rate = given.rate if given.rate is not None else (25.0 if given.exit else 2.0)
    if not 0 < rate <= 1000:
        parser.error("--rate must be above 0 and at most 1000")
    return Options(
        orders=given.orders,
        exit=given.exit,
        json=given.json,
        kill=tuple(dict.fromkeys(given.kill)),
        orders_per_second=rate,
        deadline_seconds=given.deadline,
        folder=given.folder.resolve(),
    )
