"""Proof that no value was lost: fingerprints of rows, by Postgres and of Parquet files, and what they say of files."""
