class TritonPythonModel:
    def initialize(self, args):
        import nosuch
    def execute(self, r):
        return []
