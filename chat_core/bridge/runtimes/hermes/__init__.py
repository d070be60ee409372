"""The runtime that works with the real `AIAgent` of hermes-agent 0.19.0; see `runtime`."""
