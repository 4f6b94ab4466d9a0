"""The policy being served: token ids in, token ids and log-probs out.

`registry.py` makes an `EngineHost` from the settings: an engine with its readiness, its life and its capabilities. The
engines of ours are processes, joined with the control process by HTTP on a Unix socket:

    control process                            worker process
    worker/supervisor.Supervisor               worker/process.run_worker
      worker/client.SocketEngine   ── socket ──▶ worker/server.EngineServer
                                                   scripted.ScriptedEngine | embedded/engine.EmbeddedEngine

Servers of others, started here or at `engine.url`, are asked over TCP:

    worker/supervisor.Supervisor               foreign/keeper.Keeper, around a server of ours
      foreign/engine.ForeignEngine ── HTTP ──▶   vLLM | SGLang

`pool/` makes one host of several.

Nothing is imported here, so that the control process never loads torch and a worker never loads aiohttp.
"""
