# Sourced by the scripts beside it: runs the one that sources it, by its name, as a command of openclaw-rl.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m openclaw_combine.launch "$(basename "$0")" "$@"
