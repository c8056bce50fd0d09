"""What tests share: the command line in process, servers, tiny models, hand-made repositories."""
