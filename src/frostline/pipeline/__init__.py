"""The jobs that run on Spark: plan, capture, export, verify, publish, clean."""
