/** Elements from plain values. Every text becomes a text node: nothing here, or anywhere in the page, reads HTML. */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | false | null | undefined} Leaf */
/** @typedef {Leaf | readonly Leaf[]} Some */
/** What an element holds; lists may stand in lists. @typedef {Some | readonly (Some | readonly Some[])[]} Child */
/** @typedef {Record<string, unknown>} Props */

/**
 * `class` is a string; `on…` a listener; `true` an attribute without value; `false`, null and undefined leave it out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  if (props) assign(element, props);
  append(element, children);
  return element;
}

/**
 * @param {string} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, props, ...children) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  if (props) assign(element, props);
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Props} props
 */
function assign(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (name === "style") {
      const style = /** @type {HTMLElement} */ (element).style;
      for (const [key, one] of Object.entries(/** @type {Record<string, string>} */ (value))) style.setProperty(key, one);
    } else if (name === "value" && "value" in element) {
      /** @type {HTMLInputElement} */ (element).value = String(value);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

/**
 * @param {Node} parent
 * @param {readonly Child[]} children
 */
export function append(parent, children) {
  for (const child of children) {
    if (child === false || child === null || child === undefined) continue;
    if (child instanceof Node) parent.appendChild(child);
    else if (typeof child === "object") append(parent, child);
    else parent.appendChild(document.createTextNode(String(child)));
  }
}

/**
 * Replaces what stands in `parent`.
 * @param {Element} parent
 * @param {...Child} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
}

/**
 * The element that a selector names in a place where it is known to stand.
 * @param {string} selector
 * @param {ParentNode} [place]
 * @returns {HTMLElement}
 */
export function the(selector, place = document) {
  const found = place.querySelector(selector);
  if (!(found instanceof HTMLElement)) throw new Error(`the page has no ${selector}`);
  return found;
}
