"""What differs by format: how files are joined, counted and digested. Knows no epochs."""
