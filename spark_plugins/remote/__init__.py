"""Spark Connect: a query that runs in a server, whose batches are written by a process of that server.

Three processes take part. The *client* calls `EpochWriter.start`: it checks the query, sends the writer to the server
and settles when the query has ended (`starting`, `started`, `query`, `settling`). The *server* has the JVM, and
tells nobody of it. Its *worker*, a Python process that lives as long as the query, calls the writer for each batch
(`batches`): it proves that the checkpoint is the query's own, stages, and watches ``commits/`` (`commits`).
"""
