"""The built-in Postgres and the demo."""
