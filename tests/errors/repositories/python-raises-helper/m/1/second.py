raise ImportError("install it first")
