"""What `turnpike compress` saves: fewer multiplications, faster runs, and the answers that stay."""
