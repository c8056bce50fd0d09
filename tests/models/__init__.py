"""Small models with random weights and what PyTorch answers: ``make models`` renews ``tests/data/models``.

``images`` runs in .venv, which has Pillow and image processors, the others in .venv-export, which has torch.
"""
