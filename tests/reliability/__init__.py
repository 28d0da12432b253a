"""Controls: each turns off one defence of the service, and its test must then fail."""
