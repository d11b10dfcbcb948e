"""Machinery for the tests of applications that use this library, and for its own."""
