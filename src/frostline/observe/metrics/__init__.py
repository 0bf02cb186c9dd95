"""Metrics as text, and the HTTP listener that serves them."""
