"""One run: the shop works in a thread while the processes are tended and shown; then the outcome is judged."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from sqlalchemy import create_engine

from examples.demo.inbox import Inbox
from examples.demo.options import Options
from examples.demo.outcome import Outcome, Row, judge, unfinished
from examples.demo.stage import Stage
from examples.demo.story import Story
from examples.demo.table import glance, rows_by_id, waiting
from examples.demo.view import Lines, Scene, Screen, View

_TICK_SECONDS = 0.25
_LAST_MAILS = 6
_ENDLESS_KILL_EVERY_ORDERS = 20


class Run:
    """``watch`` until the end, then ask for the ``outcome``."""

    def __init__(self, options: Options, stage: Stage, interrupted: threading.Event) -> None:
        self.options = options
        self.stage = stage
        self.interrupted = interrupted
        self.engine = create_engine(stage.sqlalchemy_url)
        self.story = Story(self.engine, stage.files)
        self.left_over = waiting(stage.connection)
        """Mails that the run before this one did not finish: they go out now, and are none of this run's promises."""
        self.problems: list[str] = []

    def watch(self) -> None:
        """Let the shop work and keep the processes up until everything is final, or until Ctrl-C."""
        self.story.open()
        inbox = Inbox(self.stage.mail_server.received)
        view = self._view({"Inbox": inbox.url, **self.stage.addresses})
        closing = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="shop") as pool:
            try:
                shop = pool.submit(self.story.play, self.options.orders, self.options.orders_per_second, closing)
                self._loop(view, shop.done)
            finally:
                closing.set()
                view.close()
                inbox.close()
        if error := shop.exception():
            self.problems.append(f"the shop stopped: {error}")
        self.engine.dispose()

    def outcome(self) -> Outcome:
        """The verdict on this run's mails. After Ctrl-C those that still wait are left out: they go out next time."""
        promises = self.story.promises
        rows = rows_by_id(self.stage.connection, [promise.id for promise in promises])
        accepted = self.stage.mail_server.accepted()
        for id_ in self.left_over:
            del accepted[id_]
        if self.interrupted.is_set():
            promises = [promise for promise in promises if not unfinished([promise], rows)]
            finished = {promise.id for promise in promises}
            accepted = Counter({id_: count for id_, count in accepted.items() if id_ in finished})
        outcome = judge(promises, rows, accepted, copies_allowed=self.stage.copies_allowed)
        outcome.problems.extend(self.problems)
        return outcome

    def _loop(self, view: View, shop_is_done: Callable[[], bool]) -> None:
        begun_at = time.monotonic()
        to_kill = list(self.options.kill)
        while not self.interrupted.wait(_TICK_SECONDS):
            for line in self.stage.tend():
                view.say(line)
            if to_kill and self.story.orders >= self._kill_at(len(self.options.kill) - len(to_kill)):
                victim = to_kill.pop(0)
                view.say(f"kill -9 {victim}")
                self.stage.kill(victim)
            view.show(self._scene())
            if not self.options.exit or not shop_is_done() or to_kill:
                continue
            left = unfinished(self.story.promises, self._rows())
            if not left:
                return
            if time.monotonic() - begun_at > self.options.deadline_seconds:
                self.problems.append(f"{left} mails are not final after {self.options.deadline_seconds:.0f} s")
                return

    def _kill_at(self, place: int) -> int:
        if self.options.orders is None:
            return _ENDLESS_KILL_EVERY_ORDERS * (place + 1)
        return self.options.orders * (place + 1) // (len(self.options.kill) + 1)

    def _rows(self) -> dict[UUID, Row]:
        return rows_by_id(self.stage.connection, [promise.id for promise in self.story.promises])

    def _scene(self) -> Scene:
        mails = self.stage.mail_server.received()[: -_LAST_MAILS - 1 : -1]
        return Scene(
            orders=self.story.orders,
            promised=len(self.story.promises),
            glance=glance(self.stage.connection),
            processes=self.stage.processes(),
            restarts=self.stage.restarts(),
            last_mails=[(mail.header("To"), mail.header("Subject")) for mail in mails],
        )

    def _view(self, addresses: dict[str, str]) -> View:
        if sys.stdout.isatty() and not self.options.json:
            return Screen(addresses)
        lines = Lines()
        for name, address in addresses.items():
            lines.say(f"{name}: {address}")
        return lines
