"""Upkeep by itself: what is due by a persisted schedule, and what somebody asked for."""
