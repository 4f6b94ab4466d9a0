/** The turns of a conversation that are here, and the way through its branches that is shown. Knows no page. */

/** @typedef {import("./api").ChatTurn} ChatTurn */

export class Thread {
  constructor() {
    /** @type {Map<number, ChatTurn>} */
    this.turns = new Map();
    /** @type {number | null} */
    this.end = null;
    this.isChosen = false;
    /** Asks for the turns before these. @type {string | null} */
    this.next = null;
  }

  /** The last turn of what is shown. @returns {ChatTurn | null} */
  get leaf() {
    return this.end === null ? null : (this.turns.get(this.end) ?? null);
  }

  /**
   * Earlier turns, or the newest ones; answers with those that stand before what is shown.
   * @param {ChatTurn[]} found
   * @param {string | null} next
   */
  add(found, next) {
    const shown = new Set(this.path().map((turn) => turn.index));
    this.keep(found);
    this.next = next;
    return this.path().filter((turn) => !shown.has(turn.index));
  }

  /** The newest turns, as they are now. @param {ChatTurn[]} found */
  refresh(found) {
    this.keep(found);
    const newest = Math.max(-1, ...found.map((turn) => turn.index));
    if (newest >= 0 && !this.isChosen) this.end = newest;
  }

  /** @param {ChatTurn[]} found */
  keep(found) {
    for (const turn of found) if (turn.kind === "main") this.turns.set(turn.index, turn);
    if (this.end === null && this.turns.size) this.end = Math.max(...this.turns.keys());
  }

  /** A turn that has just been answered; it is the last one now. @param {ChatTurn} turn */
  put(turn) {
    this.turns.set(turn.index, turn);
    this.end = turn.index;
    this.isChosen = false;
  }

  /** @param {string} id */
  named(id) {
    return this.turns.get(Number(id.slice(id.lastIndexOf(".") + 1)));
  }

  /** From the first one that is here to the last. */
  path() {
    const way = [];
    let turn = this.leaf;
    while (turn) {
      way.unshift(turn);
      turn = turn.parent === null ? null : (this.turns.get(turn.parent) ?? null);
    }
    return way;
  }

  /** @param {ChatTurn} turn */
  siblings(turn) {
    return [...this.turns.values()].filter((one) => one.parent === turn.parent && one.id !== "").sort((a, b) => a.index - b.index);
  }

  /** Shows an alternative with the newest of what followed it. @param {ChatTurn} turn */
  choose(turn) {
    const of = new Set([turn.index]);
    for (const index of [...this.turns.keys()].sort((a, b) => a - b)) {
      const parent = this.turns.get(index)?.parent ?? null;
      if (parent !== null && of.has(parent)) of.add(index);
    }
    this.end = Math.max(...of);
    this.isChosen = true;
  }

  /** Shows what stands before a turn. @param {ChatTurn} turn */
  cutBefore(turn) {
    this.end = turn.parent;
    this.isChosen = true;
  }
}
