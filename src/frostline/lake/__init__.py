"""Iceberg: schema, data files, the staged commit, snapshots and object store paths."""
