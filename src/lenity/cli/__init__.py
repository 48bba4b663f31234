"""The command line: one file a command, and what they share to read prompts and print results."""
