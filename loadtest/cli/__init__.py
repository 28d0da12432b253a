"""The command line of the load test: `turnpike loadtest`, its options, and what it prints while it runs."""
