// Elements, without any HTML in strings: what comes from messages can only become text.

import { printable } from "/static/format.js";

const SVG = "http://www.w3.org/2000/svg";
const READ = new Set(["title", "aria-label"]); // attributes that people read

function shown(text) {
  return typeof text === "string" ? printable(text) : text;
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else {
      element.setAttribute(name, value === true ? "" : READ.has(name) ? shown(value) : value);
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map(shown));
  return element;
}

export function html(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

export function setText(id, text) {
  const element = byId(id);
  const wanted = shown(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

// Replaces what is in a container; the keyboard stays on the element with the same data-key.
export function replace(container, ...children) {
  const key = container.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  container.replaceChildren(...children.flat(Infinity).filter((child) => child));
  if (key) container.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}
