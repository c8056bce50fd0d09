def scale(request):
    return request
