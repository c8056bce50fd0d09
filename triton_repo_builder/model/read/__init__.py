"""The user's files and options as frozen values: model file, tokenizer, image processor, options."""
