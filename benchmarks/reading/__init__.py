"""Measures how well the bundled model reads what people give to the page, and draws digits to train on."""
