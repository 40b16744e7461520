"""Is a target what its manifests and the journal say?"""
