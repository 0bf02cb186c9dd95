"""What one managed table is made of in Postgres: view, rule, triggers, overlay, foreign tables; registration."""
