"""What the user gives, read into frozen values: model file, tokenizer, image processor, options."""
