name = "m"
slots = [0, 0]
index, slots[index] = 0, 1


def exit():
    pass


exit()


class Names(dict):
    def __missing__(self, key):
        if key.startswith("_"):
            raise KeyError(key)
        return key


class Colours(type):
    @classmethod
    def __prepare__(cls, name, bases):
        return Names()


class Colour(metaclass=Colours):
    red
    green


class TritonPythonModel:
    def initialize(self, args):
        print(name)
        self.names = [name for name in args]

        def load():
            nonlocal weights
            weights = 1

        load()
        self.weights = weights
        weights = None

    def execute(self, requests):
        return []
