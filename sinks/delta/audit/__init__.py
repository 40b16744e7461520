"""Is a table what the journal says?"""
