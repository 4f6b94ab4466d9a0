"""`python -m openclaw_combine.test_rollout --num-samples 10 --output-dir DIR`: that is `openclaw-rl rollouts test`."""

import sys

from openclaw_rl.cli.app import main

if __name__ == "__main__":
    main(["rollouts", "test", *sys.argv[1:]])
