"""The runtime that works with the real `AIAgent` of hermes-agent 0.19.0."""

from chat_core.bridge.runtimes.hermes.runtime import HermesRuntime

__all__ = ["HermesRuntime"]
