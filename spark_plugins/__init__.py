"""Binds the protocol and the sinks to Spark: foreachBatch, listener, config, session.

`checkpoint` does not need Spark, so the command line can recover local streams without a JVM.
"""
