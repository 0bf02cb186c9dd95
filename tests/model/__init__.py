"""Models of protocols, and what walks through all of their states."""
