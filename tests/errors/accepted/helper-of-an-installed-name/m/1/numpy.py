raise ValueError("the one in site-packages goes first")
