"""The leaf's plan: logical form, rules that rewrite it, expressions, binding. Pure."""
