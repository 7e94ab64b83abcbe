// Handing a trace to ui.perfetto.dev, which runs in a tab of its own and gets the trace from this one.

const PERFETTO = "https://ui.perfetto.dev";
const [PING_MS, PATIENCE_MS] = [100, 30_000];

/** Open Perfetto's page. It must be called while a click is handled, or browsers block the tab. */
export function openPerfetto() {
  return window.open(PERFETTO);
}

/** Send a trace to the tab once it answers; return whether it did. */
export async function sendTrace(tab, buffer, title) {
  const isReady = await answers(tab);
  if (isReady) tab.postMessage({ perfetto: { buffer, title, fileName: `${title}.json` } }, PERFETTO);
  return isReady;
}

/** Ask until the tab answers, as it must have loaded its page first. */
function answers(tab) {
  return new Promise((resolve) => {
    const end = (isReady) => {
      clearInterval(timer);
      removeEventListener("message", hear);
      resolve(isReady);
    };
    const hear = (event) => {
      if (event.origin === PERFETTO && event.source === tab && event.data === "PONG") end(true);
    };
    const begun = Date.now();
    const timer = setInterval(() => {
      if (tab.closed || Date.now() - begun > PATIENCE_MS) end(false);
      else tab.postMessage("PING", PERFETTO);
    }, PING_MS);
    addEventListener("message", hear);
  });
}
