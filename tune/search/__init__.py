"""Chooses the settings to try, and decides which are best. In: trials. Out: a decision."""
