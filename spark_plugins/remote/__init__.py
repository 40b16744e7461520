"""Spark Connect: a query that runs in a server, whose batches are written by a process of that server.

The *client* calls `EpochWriter.start`: it checks the query and sends the writer to the server (`starting`, `started`).
When the query has ended, it has the server settle (`query`, `settling`).

The *server* has the JVM, where epochal has nothing. It starts two kinds of Python processes. A *worker* lives as long
as a query and calls the writer for each batch: it proves that the checkpoint is the query's own, stages, and watches
``commits/`` (`batches`, `commits`). A *callee* does what the client asks for, with the server's files (`calls`,
`on_server`).
"""
