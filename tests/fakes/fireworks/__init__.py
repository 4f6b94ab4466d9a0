"""A local service that speaks Fireworks' serverless training protocol."""
