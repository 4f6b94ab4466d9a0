"""Commands that only look: sessions, inspect, versions, why."""
