"""``trb optimize``: a smaller and faster file of the same model, proven on samples before it is written."""
