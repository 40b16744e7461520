"""Participants: one folder a store. They never import each other."""
