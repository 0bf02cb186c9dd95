"""What a running Frostline shows of itself: metrics as text, and the one HTTP listener that serves them."""
