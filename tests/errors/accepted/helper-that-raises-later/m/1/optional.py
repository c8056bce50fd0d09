raise ImportError('x')
