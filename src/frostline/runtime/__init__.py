"""What runs: the built-in Postgres and its home, `up`, `serve`, `run`, installing, the demo."""
