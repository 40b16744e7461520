"""Options: how they are checked, and how texts become numbers, sizes and times."""
