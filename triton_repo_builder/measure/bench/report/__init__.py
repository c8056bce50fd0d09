"""Reports of a benchmark. A format is a module here and an entry of ``files.FORMATS``."""
