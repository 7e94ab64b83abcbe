// Elements of a page. Text becomes text nodes, never markup.
import { problemText } from "./api.js";

/** Return an element with attributes, properties (functions as listeners) and children. */
export function h(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** Replace the children of an element, less those that are false, null or ""; the focus stays where its id is. */
export function fill(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
  element.replaceChildren(...children.flat().filter((child) => child != null && child !== false && child !== ""));
  if (focused) document.getElementById(focused)?.focus();
}

/** Return the head of a table; names that are false or "" have no column. */
export function headRow(names) {
  return h("thead", {}, h("tr", {}, names.filter(Boolean).map((name) => h("th", { scope: "col" }, name))));
}

/** Return the element that has the focus, null where only the page has it. */
export function focusedElement() {
  return /** @type {HTMLElement | null} */ (document.activeElement);
}

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/** Return an element of a picture, as `h` does. */
export function svg(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElementNS(SVG_NAMESPACE, tag);
  element.classList.add(...classes);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value != null && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.flat(2).filter((child) => child != null && child !== false));
  return element;
}

let announcementTimer;

/** Say something in the status line that screen readers announce. */
export function announce(text) {
  const line = document.querySelector("#announcement");
  line.textContent = text;
  clearTimeout(announcementTimer);
  announcementTimer = setTimeout(() => (line.textContent = ""), 4000);
}

/** Put text on the clipboard, which browsers offer to secure pages alone. */
export async function copyText(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${what} copied`);
  } catch {
    showText(what, text);
  }
}

/** Show a text from which it can be copied by hand. */
function showText(title, text) {
  const dialog = h(
    "dialog",
    { close: () => dialog.remove(), "aria-label": title },
    h("h2", {}, title),
    h("pre", { tabindex: 0 }, text),
    h("form", { method: "dialog" }, h("button", {}, "Close")),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** Ask before something is done that others notice; `action` may throw what is then shown. */
export function confirmAction(title, text, verb, action) {
  const problem = h("p.error", { role: "alert", hidden: true });
  const confirm = h("button.primary", { type: "button", click: run }, verb);
  const dialog = h(
    "dialog.confirm",
    { close: () => dialog.remove(), "aria-label": title },
    h("h2", {}, title),
    h("p", {}, text),
    problem,
    h("form.actions", { method: "dialog" }, confirm, h("button", { autofocus: true }, "Cancel")),
  );
  async function run() {
    confirm.disabled = true;
    try {
      await action();
      dialog.close();
    } catch (error) {
      problem.textContent = problemText(error);
      problem.hidden = false;
      confirm.disabled = false;
    }
  }
  document.body.append(dialog);
  dialog.showModal();
}

/** A command in its own line, with a button that copies it. */
export function commandLine(text) {
  return h(
    "div.command",
    {},
    h("code", {}, text),
    h("button", { type: "button", "aria-label": `Copy: ${text}`, click: () => copyText(text, "The command") }, "Copy"),
  );
}

/** Let the browser save a file. */
export function saveFile(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
