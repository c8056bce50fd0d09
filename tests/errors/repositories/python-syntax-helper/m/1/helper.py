def scale(requests:
    return []
