import second

SCALE = 2
