// The page on which a token is exchanged for a session.
import { problemText, send } from "./api.js";
import { h } from "./dom.js";

export function show(main) {
  const message = h("p.error", { role: "alert" });
  const field = h("input", {
    id: "token", name: "token", type: "password", autocomplete: "current-password", required: true,
  });
  async function submit(event) {
    event.preventDefault();
    try {
      await send("POST", "/studio/session", { token: field.value.trim() });
      location.assign(nextPage());
    } catch (error) {
      message.textContent = problemText(error);
    }
  }
  main.replaceChildren(
    h(
      "form.card.login",
      { submit },
      h("h1", {}, "Log in"),
      h("p", {}, "This service asks for a token. Its operator makes one with ",
        h("code", {}, "tuner token create NAME --scope read"), "."),
      h("label", { for: "token" }, "Token"),
      field,
      message,
      h("button.primary", {}, "Log in"),
    ),
  );
  field.focus();
}

/** Return the page that was asked for, which is always one of the studio. */
function nextPage() {
  const next = new URLSearchParams(location.search).get("next") ?? "";
  const url = new URL(next, location.origin);
  return url.origin === location.origin && url.pathname.startsWith("/studio/")
    ? url.pathname + url.search + url.hash
    : "/studio/";
}
