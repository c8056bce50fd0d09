for one in [1]:
    pass
if two := 2:
    import os as three
