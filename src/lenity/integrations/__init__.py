"""lenity inside other people's tools: lm-eval."""
