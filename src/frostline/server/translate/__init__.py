"""Remote SQL, as postgres_fdw writes it, to DuckDB SQL with the same meaning, by small rules."""
