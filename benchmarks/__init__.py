"""Measurements against named peers and limits; each prints its ratios and fails when it falls short of its target."""
