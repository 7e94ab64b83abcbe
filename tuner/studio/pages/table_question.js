// What the table page shows; its URL restores it.
const PATH = "/studio/table";

/** Return the state of the URL. */
export function stateOfUrl() {
  const query = new URLSearchParams(location.search);
  const version = Number(location.pathname.slice(PATH.length + 1)) || null;
  const at = Number(query.get("at"));
  return {
    version,
    against: Number(query.get("against")) || null,
    collective: query.get("collective") ?? "", // of the rows that are shown, or "all"
    call: query.get("call") ?? "", // the selected row, such as bcast/4x2
    at: query.has("at") && at >= 0 ? at : null, // a size in the selected rule
    operators: query.get("operators") ?? "",
    memory: query.get("memory") ?? "",
    placement: query.get("placement") ?? "",
    changed: query.get("rows") === "changed",
  };
}

export function urlOfState(state) {
  const query = new URLSearchParams();
  for (const name of ["collective", "call", "operators", "memory", "placement", "against"]) {
    if (state[name]) query.set(name, state[name]);
  }
  if (state.at !== null) query.set("at", state.at);
  if (state.changed) query.set("rows", "changed");
  const search = query.toString();
  return `${PATH}/${state.version}${search ? `?${search}` : ""}`;
}
