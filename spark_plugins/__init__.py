"""Binds the protocol and the sinks to Spark: foreachBatch, listener, config, session.

`checkpoint` needs no Spark, so that the command line can recover local streams without a JVM.
"""
