"""The calls of a lake: those that `Lake` itself has, and the groups behind its nouns."""
