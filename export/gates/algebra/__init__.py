"""What values compute, as mathematics: sigmoids and their logits, bounds, and sums of products with gates."""
