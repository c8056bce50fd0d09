def execute(self, requests):
    return []
