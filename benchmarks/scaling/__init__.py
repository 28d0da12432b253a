"""What happens beyond one machine."""
