try:
    import optional
except ImportError:
    optional = None


class TritonPythonModel:
    def execute(self, requests):
        import lazy
        from optional import nothing
