"""Phase one: an epoch's files are written where no reader looks."""
