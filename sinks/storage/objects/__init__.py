"""File operations on object stores: S3 and what speaks its protocol, Google's, Azure's; see docs/objects.md."""

from epochal.sinks.storage.objects.clients import clients_for
from epochal.sinks.storage.objects.files import ObjectFiles
from epochal.sinks.storage.objects.opening import open_files, open_target
from epochal.sinks.storage.objects.sink_files import ObjectSinkFiles

__all__ = ["ObjectFiles", "ObjectSinkFiles", "clients_for", "open_files", "open_target"]
