"""Phase one: an epoch's rows become rows of a staged table, or one piece of text."""
