"""The guests of the core: each folder is an extension, with everything that it needs."""
