raise ValueError("Python runs this before model.py")
