class TritonPythonModel:
    def initialize(self, args):
        args.update(scale="2")
        self.scale = args["scale"]

    def execute(self, requests):
        return []
