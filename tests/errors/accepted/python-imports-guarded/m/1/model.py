import os
import sys
from contextlib import suppress

with suppress(ImportError):
    from helper import fast
if sys.version_info[0] == 2:
    import old
if os.environ.get("NONE_SETS_THIS"):
    from helper import slow
    from . import nothing


class TritonPythonModel:
    def initialize(self, args):
        def later():
            from helper import slow

        self.later = later

    def execute(self, requests):
        return []
