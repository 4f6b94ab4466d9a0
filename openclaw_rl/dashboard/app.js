/** What every page is given: who is signed in, whose line is looked at, and how to go elsewhere. */

/** @typedef {import("./api").Me} Me */

/**
 * @typedef {object} App
 * @property {Me} me
 * @property {string} user whose line is looked at
 * @property {(user: string) => void} choose looks at another user's line
 * @property {() => Promise<void>} refresh asks anew who is signed in and what answers
 */

/**
 * A page that is shown. `heard` is told what changes, `back` that the server was gone and is there again.
 * @typedef {object} Page
 * @property {(path: string[], query: URLSearchParams) => unknown} go
 * @property {(event: import("./live.js").Live) => void} heard
 * @property {() => unknown} back
 * @property {() => void} leave
 */

export {};
