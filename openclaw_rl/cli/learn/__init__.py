"""Commands that judge, train, evaluate, export and take back."""
