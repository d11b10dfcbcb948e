"""The relay's arithmetic: what may go out, in what pieces, and how long it waits after a failure."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from outbox_mail.names import Priority
from outbox_mail.outbox.due import DueRow
from relay.backoff import FIRST_SECONDS, Backoff
from relay.window import ids_per_task, limit, pack, rooms

PRIORITIES = st.sampled_from(list(Priority))
ROWS = st.lists(
    st.builds(
        DueRow,
        st.uuids(),
        PRIORITIES,
        st.floats(0, 1e6),
        st.none() | st.just({"traceparent": "00-x"}),
    ),
    max_size=600,
    unique_by=lambda row: row.id,
)


@given(
    window=st.integers(1, 5000),
    batch=st.integers(1, 1000),
    relays=st.integers(1, 8),
    steps=st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.integers(0, 1000)), max_size=60),
)
def test_relays_that_cannot_see_each_others_rounds_stay_within_the_window(
    window: int, batch: int, relays: int, steps: list[tuple[int, bool, int]]
) -> None:
    """In any order, each relay counts what is committed and takes, and later commits; workers finish some."""
    bound = max(window, relays)
    out = 0
    taken = [0] * relays
    for number, commits, finished in steps:
        relay = number % relays
        if taken[relay] and commits:
            out, taken[relay] = out + taken[relay], 0
        elif not taken[relay]:
            room = rooms(window, {Priority.BULK: out}, batch=batch, relays=relays)[Priority.BULK]
            taken[relay] = min(room, batch)
        out = max(0, out - finished)
        assert out + sum(taken) <= bound


@given(st.integers(1, 5000), st.integers(1, 1000), st.integers(1, 8))
def test_an_empty_broker_always_has_room(window: int, batch: int, relays: int) -> None:
    assert all(room >= 1 for room in rooms(window, {}, batch=batch, relays=relays).values())


@given(st.integers(1, 5000), st.dictionaries(PRIORITIES, st.integers(0, 10_000)))
def test_one_relay_alone_has_the_whole_window_and_priorities_do_not_share(
    window: int, out: dict[Priority, int]
) -> None:
    room = rooms(window, out, batch=500, relays=1)

    assert room == {priority: max(0, window - out.get(priority, 0)) for priority in Priority}


@given(ROWS, st.integers(1, 100))
def test_packing_keeps_every_id_once_and_never_mixes_priorities(rows: list[DueRow], most: int) -> None:
    hints = pack(rows, most)

    packed = [(hint.priority, id_) for hint in hints for id_ in hint.ids]
    assert sorted(packed) == sorted((row.priority, row.id) for row in rows)
    assert all(1 <= len(hint.ids) <= most for hint in hints)


@given(ROWS, st.integers(1, 100))
def test_packing_puts_the_urgent_and_then_the_oldest_first(rows: list[DueRow], most: int) -> None:
    age = {row.id: row.age_seconds for row in rows}
    order = [(hint.priority, -age[id_]) for hint in pack(rows, most) for id_ in hint.ids]

    assert order == sorted(order)


@given(ROWS, st.integers(1, 100))
def test_a_task_has_a_trace_context_only_when_it_is_one_rows(rows: list[DueRow], most: int) -> None:
    context: dict[UUID, object] = {row.id: row.trace_context for row in rows}
    for hint in pack(rows, most):
        assert hint.trace_context == (context[hint.ids[0]] if len(hint.ids) == 1 else None)


@given(st.integers(1, 10_000), st.integers(1, 100))
def test_few_rows_get_a_task_each_and_more_rows_never_get_less_packed(count: int, most: int) -> None:
    size = ids_per_task(count, most)

    assert 1 <= size <= most
    assert size == 1 or count / size >= 16
    assert ids_per_task(count + 1, most) >= size


@given(st.integers(1, 10_000), st.integers(0, 10_000))
def test_each_failure_shrinks_the_next_round_and_none_empties_it(batch: int, failures: int) -> None:
    assert limit(batch, 0) == batch
    assert 1 <= limit(batch, failures + 1) <= limit(batch, failures)


@given(st.floats(0.01, 600), st.integers(1, 200))
def test_waits_grow_to_the_ceiling_and_are_spread(ceiling: float, failures: int) -> None:
    backoff = Backoff(ceiling)
    waits = [backoff.next_seconds() for _ in range(failures)]

    for number, wait in enumerate(waits):
        longest = min(ceiling, FIRST_SECONDS * 2 ** min(number, 30))
        assert longest / 2 <= wait <= longest
    assert backoff.failures == failures


def test_waits_of_relays_that_failed_together_differ() -> None:
    assert len({Backoff(10).next_seconds() for _ in range(20)}) > 15


def test_a_success_begins_anew() -> None:
    backoff = Backoff(600)
    for _ in range(20):
        backoff.next_seconds()
    backoff.reset()

    assert backoff.next_seconds() <= FIRST_SECONDS
