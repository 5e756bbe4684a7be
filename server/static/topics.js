// The list of topics: links, updated in place so that the keyboard does not lose its way.

import { addressOf } from "/static/address.js";
import { byId, html } from "/static/dom.js";
import { rate, several, size } from "/static/format.js";

const links = new Map();

function linkOf(name) {
  let link = links.get(name);
  if (!link) {
    link = html("a", { href: addressOf(name, 0) },
      html("span", { class: "name" }, name),
      html("span", { class: "line" }, html("span", {}), html("span", {})),
      html("span", { class: "line" }, html("span", {}), html("span", {})));
    links.set(name, link);
  }
  return link;
}

function write(link, texts) {
  link.querySelectorAll(".line span").forEach((element, number) => {
    if (element.textContent !== texts[number]) element.textContent = texts[number];
  });
}

export function show(topics, rates, chosen) {
  const wanted = topics.map((topic) => {
    const link = linkOf(topic.name);
    write(link, [
      several(topic.messages, "message"), size(topic.size_bytes),
      several(topic.partitions, "partition"), rate(rates.get(topic.name) ?? null),
    ]);
    link.firstChild.classList.toggle("bad", Boolean(topic.problem || topic.damaged_segments));
    if (topic.name === chosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    return link;
  });
  const list = byId("topics");
  const now = [...list.children].map((item) => item.firstChild);
  if (now.length !== wanted.length || now.some((link, place) => link !== wanted[place])) {
    const focused = document.activeElement;
    list.replaceChildren(...wanted.map((link) => html("li", {}, link)));
    if (wanted.includes(focused)) focused.focus({ preventScroll: true });
  }
  const names = new Set(topics.map((topic) => topic.name));
  for (const name of links.keys()) if (!names.has(name)) links.delete(name);
}
