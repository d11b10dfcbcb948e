"""What is seen from outside: metrics, logs and traces, all subscribers of the core's signals."""
