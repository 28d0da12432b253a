"""The command `turnpike tune`, and what it shows in the terminal."""
