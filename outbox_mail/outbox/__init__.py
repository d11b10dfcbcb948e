"""The channel-neutral core: statuses, transitions, retry policy, reaper and retention."""
