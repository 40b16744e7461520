"""Phase one: an epoch's files are written where no log entry names them."""
