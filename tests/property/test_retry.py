"""Backoff: bounded, growing, spread by jitter, and never shorter than what a provider asked for."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_mail.errors import ErrorClass
from outbox_mail.outbox.retry import RetryPolicy

schedules = st.lists(st.floats(0.1, 86_400), min_size=1, max_size=8).map(lambda waits: tuple(sorted(waits)))
policies = st.builds(RetryPolicy, schedule_seconds=schedules, jitter=st.floats(0, 1), max_attempts=st.integers(1, 20))
seeds = st.integers().map(random.Random)


@given(policies, st.integers(1, 100), st.none() | st.floats(-5, 1e9), seeds)
def test_a_delay_stays_within_its_bounds(
    policy: RetryPolicy, failed: int, retry_after: float | None, rng: random.Random
) -> None:
    delay = policy.delay_seconds(failed, retry_after, rng=rng)

    scheduled = policy.schedule_seconds[min(failed, len(policy.schedule_seconds)) - 1]
    assert scheduled <= delay <= policy.ceiling_seconds() * 1.000001
    if retry_after is not None:
        assert delay >= min(retry_after, policy.max_retry_after_seconds)


@given(policies, st.integers(1, 50))
def test_without_jitter_a_later_attempt_never_waits_less(policy: RetryPolicy, failed: int) -> None:
    calm = RetryPolicy(schedule_seconds=policy.schedule_seconds, jitter=0)

    assert calm.delay_seconds(failed) <= calm.delay_seconds(failed + 1)


def test_jitter_spreads_retries_of_one_moment_over_its_whole_share() -> None:
    rng = random.Random(7)
    delays = [RetryPolicy(schedule_seconds=(100.0,), jitter=0.2).delay_seconds(1, rng=rng) for _ in range(5000)]

    assert min(delays) < 100.5
    assert max(delays) > 119.5
    assert statistics.stdev(delays) == pytest.approx(20 / 12**0.5, rel=0.05)


@given(policies, st.integers(1, 30), st.booleans())
def test_permanent_errors_give_up_at_once_and_others_at_the_ceiling(
    policy: RetryPolicy, failed: int, at_most_once: bool
) -> None:
    assert policy.gives_up(ErrorClass.PERMANENT, failed, at_most_once=at_most_once)
    assert policy.gives_up(ErrorClass.TRANSIENT, failed, at_most_once=at_most_once) is (failed >= policy.max_attempts)
    assert policy.gives_up(ErrorClass.UNKNOWN, failed, at_most_once=at_most_once) is (
        at_most_once or failed >= policy.max_attempts
    )
