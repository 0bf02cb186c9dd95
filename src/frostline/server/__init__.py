"""The lake server: speaks the Postgres wire protocol and answers with DuckDB over Iceberg."""
