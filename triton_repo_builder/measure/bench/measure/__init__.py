"""What is measured while a load runs."""
