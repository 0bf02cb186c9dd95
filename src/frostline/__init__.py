"""Frostline: one PostgreSQL table, two tiers. Recent rows in the heap, old rows in Apache Iceberg."""
