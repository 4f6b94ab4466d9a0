/** Elements from plain values. Every text becomes a text node: nothing here, or anywhere in the page, reads HTML. */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | false | null | undefined} Child */
/** @typedef {Record<string, unknown>} Props */

/**
 * `class` is a string; `on…` a listener; `true` an attribute without value; `false`, null and undefined leave it out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props | null} [props]
 * @param {...(Child | Child[])} children
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
 * @param {...(Child | Child[])} children
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
 * @param {(Child | Child[])[]} children
 */
export function append(parent, children) {
  for (const child of children.flat()) {
    if (child === false || child === null || child === undefined) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * Replaces what stands in `parent`.
 * @param {Element} parent
 * @param {...(Child | Child[])} children
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
