"""The policy being served: token ids in, token ids and log-probs out.

Two sides, joined by HTTP on a Unix socket (`wire.py` has the shapes):

    control process                          worker process
    supervisor.SupervisedEngine              worker_process.run_worker
      client.SocketEngine        ── socket ──▶ server.EngineServer
                                                 scripted.ScriptedEngine | embedded.scheduler.EmbeddedEngine

Nothing is imported here, so that the control process never loads torch and a worker never loads aiohttp.
"""
