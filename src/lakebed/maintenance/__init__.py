"""Automatic maintenance: tasks due by a persisted schedule, and requested work."""
