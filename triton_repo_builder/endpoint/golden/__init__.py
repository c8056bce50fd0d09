"""The original model's answers, recorded by an independent path, and the cases that hold them."""
