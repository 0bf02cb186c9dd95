"""The only package that sends SQL for Frostline's own tables."""
