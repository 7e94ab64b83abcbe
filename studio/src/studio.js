// The shell of the studio: navigation, theme, session; the page is chosen by the path.
import { getJson, problemText, send } from "./api.js";
import { hasClusters, showClusters } from "./clusters.js";
import { showCall } from "./call.js";
import { h } from "./dom.js";
import { showLogin } from "./login.js";
import { showTable } from "./table.js";
import { showMeasure } from "./measure.js";
import { showReport } from "./report.js";
import { addToken } from "./shell.js";
import { applyTheme, themeButton } from "./theme.js";
import { showTraining } from "./training.js";
import { showWhatIf } from "./whatif.js";

const PAGES = [ // in the order of the navigation
  ["/studio/clusters", "Clusters", showClusters],
  ["/studio/table", "Table", showTable],
  ["/studio/measure", "Measure", showMeasure],
  ["/studio/what-if", "What if", showWhatIf],
  ["/studio/call", "Inside a call", showCall],
  ["/studio/training", "Training", showTraining],
  ["/studio/report", "Report", showReport],
];
const LOGIN = "/studio/login";

/** Return the page of a path; null for the first one, which depends on what is stored. */
function pageOf(path) {
  if (path === LOGIN) return showLogin;
  return PAGES.find(([start]) => path === start || path.startsWith(`${start}/`))?.[2] ?? null;
}

/** Return links to the pages as they were left; the one of this page starts anew. */
function links() {
  return PAGES.map(([path, title]) => {
    const isHere = pageOf(location.pathname) === pageOf(path);
    const left = isHere ? null : sessionStorage.getItem(path);
    return h("a", { href: left ?? path, title: isHere ? "Start anew" : null }, title);
  });
}

/** Keep the address of this page, so that other pages lead back to it as it was left. */
function keepAddress() {
  const here = PAGES.find((one) => one[2] === pageOf(location.pathname));
  if (here) sessionStorage.setItem(here[0], location.pathname + location.search + location.hash);
}

async function show(page, main) {
  const chosen = page ?? ((await hasClusters()) ? showClusters : showWhatIf);
  const [path, title] = PAGES.find((one) => one[2] === chosen) ?? [LOGIN, "Log in"];
  document.querySelector(`nav a[href="${path}"]`)?.setAttribute("aria-current", "page");
  document.title = `${title} \u00b7 tuner studio`;
  await chosen(main);
}

/** Ask who the reader is, and show the page or the log-in before it. */
async function open(main, account) {
  const page = pageOf(location.pathname);
  const session = await getJson("/studio/session");
  if (session.needs_token && session.client === null && page !== showLogin) {
    const next = encodeURIComponent(location.pathname + location.search + location.hash);
    location.replace(`${LOGIN}?next=${next}`);
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

/** Move the focus to the content; the address stays, as its fragment may belong to the page. */
function skip(event) {
  event.preventDefault();
  document.querySelector("#main").focus();
}

async function logOut() {
  await send("DELETE", "/studio/session");
  removeEventListener("pagehide", keepAddress);
  sessionStorage.clear();
  location.assign(LOGIN);
}

async function start() {
  applyTheme();
  addEventListener("pagehide", keepAddress);
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
