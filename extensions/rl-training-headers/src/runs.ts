/** The runs that are under way, by id: hooks tell what began a run, model calls name it. */

import type { RunContext } from "./openclaw.js";

/** A run that nobody ends (its process was cut short) is forgotten when this many newer ones have come. */
const MAX_RUNS = 2000;

export class Runs {
  readonly #byId = new Map<string, RunContext>();

  remember(run: RunContext): void {
    if (run.runId === undefined) {
      return;
    }
    this.#byId.delete(run.runId);
    this.#byId.set(run.runId, run);
    for (const oldest of this.#byId.keys()) {
      if (this.#byId.size <= MAX_RUNS) {
        break;
      }
      this.#byId.delete(oldest);
    }
  }

  find(runId: string | undefined): RunContext | undefined {
    return runId === undefined ? undefined : this.#byId.get(runId);
  }
}
