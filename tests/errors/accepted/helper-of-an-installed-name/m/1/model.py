from numpy import zeros

import names

anyone()


class TritonPythonModel:
    def execute(self, requests):
        return []
