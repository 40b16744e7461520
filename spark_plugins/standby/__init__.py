"""A second driver that waits, warm, and goes on with a stream when the one that runs it dies or hangs.

`sight` and `judging` are pure: what one look at a stream shows, and whose turn it is then. `looking` looks, `notices`
tells others who waits, `waiting` is the loop. None of these knows Spark. `warming` runs a throw-away query, `zookeeper`
keeps the lease there, and `standing_by` puts all of it together.

Nothing that is correct depends on the lease. The journal decides: a takeover is the claim of the next generation,
create-if-absent, and only if the newest one is still that of the driver which was given up. That claim fences the
earlier driver, whatever it still does.
"""
