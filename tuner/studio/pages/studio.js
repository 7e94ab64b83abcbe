// The shell of the studio: navigation, theme, session; the page is chosen by the path.
import { getJson, problemText, send } from "./api.js";
import { h } from "./dom.js";
import { addToken } from "./shell.js";
import { applyTheme, themeButton } from "./theme.js";

// Names of pages in the order of the navigation, each with its title: that of a page is in its
// path, and `show` of the module with that name fills it.
const PAGES = new Map([
  ["clusters", "Clusters"],
  ["table", "Table"],
  ["measure", "Measure"],
  ["what-if", "What if"],
  ["call", "Inside a call"],
  ["training", "Training"],
  ["report", "Report"],
  ["open", "Open"],
]);
const LOGIN = "login";

/** Return the name of a page of these; "" for the first one, which depends on what is stored. */
function pageOf(path) {
  const name = path.split("/")[2] ?? "";
  return PAGES.has(name) || name === LOGIN ? name : "";
}

function pathOf(name) {
  return `/studio/${name}`;
}

/** Return links to the pages as they were left; the one of this page starts anew. */
function links() {
  return [...PAGES].map(([name, title]) => {
    const isHere = name === pageOf(location.pathname);
    const left = isHere ? null : sessionStorage.getItem(pathOf(name));
    return h("a", { href: left ?? pathOf(name), "data-page": name, title: isHere ? "Start anew" : null }, title);
  });
}

/** Keep the address of this page, so that other pages lead back to it as it was left. */
function keepAddress() {
  const here = pageOf(location.pathname);
  if (PAGES.has(here)) sessionStorage.setItem(pathOf(here), location.pathname + location.search + location.hash);
}

/** Return whether the service knows a cluster, so that there is something to show of it. */
async function hasClusters() {
  return (await getJson("/v1/clusters?limit=1")).items.length > 0;
}

async function show(page, main) {
  await showPage(page || ((await hasClusters()) ? "clusters" : "what-if"), main);
}

async function showPage(name, main, files = []) {
  document.querySelector(`nav a[data-page="${name}"]`)?.setAttribute("aria-current", "page");
  document.title = `${PAGES.get(name) ?? "Log in"} \u00b7 tuner studio`;
  const module = await import(`./${name}.js`);
  await module.show(main, files);
}

/** Ask who the reader is, and show the page or the log-in before it. */
async function open(main, account) {
  const page = pageOf(location.pathname);
  const session = await getJson("/studio/session");
  if (session.needs_token && session.client === null && page !== LOGIN) {
    const next = encodeURIComponent(location.pathname + location.search + location.hash);
    location.replace(`${pathOf(LOGIN)}?next=${next}`);
    return;
  }
  if (session.needs_token) addToken();
  if (session.client !== null) {
    account.replaceChildren(
      h("span.client", {}, session.client), h("button.plain", { click: logOut }, "Log out"),
    );
  }
  await show(page, main);
}

/** Return whether files are dragged, not a text or a link. */
function hasFiles(event) {
  return event.dataTransfer?.types.includes("Files") && pageOf(location.pathname) !== LOGIN;
}

/** Open the files that were dropped, on whatever page. */
async function drop(event) {
  if (!hasFiles(event)) return;
  event.preventDefault();
  history.pushState(null, "", pathOf("open"));
  addEventListener("popstate", () => location.reload(), { once: true }); // back to the page of before
  const main = h("main", { id: "main", tabindex: -1 });
  document.getElementById("main").replaceWith(main);
  document.querySelector("nav a[aria-current]")?.removeAttribute("aria-current");
  try {
    await showPage("open", main, [...event.dataTransfer.files]);
  } catch (error) {
    main.prepend(h("p.error", { role: "alert" }, problemText(error)));
  }
}

/** Move the focus to the content; the address stays, as its fragment may belong to the page. */
function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

async function logOut() {
  await send("DELETE", "/studio/session");
  removeEventListener("pagehide", keepAddress);
  sessionStorage.clear();
  location.assign(pathOf(LOGIN));
}

async function start() {
  applyTheme();
  addEventListener("pagehide", keepAddress);
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", drop);
  const main = h("main", { id: "main", tabindex: -1 });
  const account = h("span");
  document.body.replaceChildren(
    h("a.skip", { href: "#main", click: skip }, "Skip to the content"),
    h(
      "header",
      {},
      h("a.brand", { href: "/studio/" }, "tuner", h("span", {}, "studio")),
      h(
        "nav",
        { "aria-label": "Pages" },
        links(),
        h("a", { href: "/docs" }, "REST reference"),
      ),
      account,
      themeButton(),
    ),
    main,
    h("div", { id: "announcement", role: "status" }),
  );
  try {
    await open(main, account);
  } catch (error) {
    main.prepend(h("p.error", { role: "alert" }, problemText(error)));
  }
}

start();
