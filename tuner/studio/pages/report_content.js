// What a reader can do with a report: choose calls, and point at a size.

/** Follow the reader in a report; `onChoose` is told {collective, ranks} after each choice. */
export function enliven(report, chosen = choiceOf(location.hash), onChoose = keepInHash) {
  const filters = [...report.querySelectorAll("[data-filter]")];
  for (const filter of filters) {
    const value = chosen[filter.dataset.filter] ?? "";
    if ([...filter.options].some((option) => option.value === value)) filter.value = value;
    filter.addEventListener("change", () => onChoose(choose(report, filters)));
  }
  choose(report, filters);
  for (const section of report.querySelectorAll("section")) {
    for (const plot of section.querySelectorAll(".plot")) followPointer(section, plot);
  }
}

/** Return the choice that a text such as `#collective=bcast&ranks=4` names. */
export function choiceOf(hash) {
  return Object.fromEntries(new URLSearchParams(hash.replace(/^[#?]/, "")));
}

function keepInHash(choice) {
  history.replaceState(null, "", `#${new URLSearchParams(choice)}`);
}

/** Show what is about the chosen calls, and return the choice. */
function choose(report, filters) {
  const choice = {};
  for (const filter of filters) if (filter.value) choice[filter.dataset.filter] = filter.value;
  for (const part of report.querySelectorAll("[data-collective]")) {
    part.hidden = Object.entries(choice).some(([name, value]) => part.dataset[name] !== value);
  }
  const calls = [...report.querySelectorAll("section[data-collective]")];
  report.querySelector(".nothing").hidden = calls.length === 0 || calls.some((one) => !one.hidden);
  return choice;
}

function followPointer(section, plot) {
  const places = plot.dataset.places.split(" ").map((place) => place.split(":").map(Number));
  let at = null;
  function show(place) {
    at = place;
    showSize(section, places[at][0]);
  }
  function nearest(event) {
    const box = plot.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * plot.viewBox.baseVal.width;
    let best = 0;
    places.forEach(([, own], number) => {
      if (Math.abs(own - x) < Math.abs(places[best][1] - x)) best = number;
    });
    if (best !== at) show(best);
  }
  plot.addEventListener("pointermove", nearest);
  plot.addEventListener("pointerdown", nearest);
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(Math.min(Math.max((at ?? (step > 0 ? -1 : 1)) + step, 0), places.length - 1));
  });
}

/** Mark a size in the plots of a section, and list its times below them, the fastest first. */
function showSize(section, size) {
  for (const plot of section.querySelectorAll(".plot")) {
    const own = plot.dataset.places.split(" ").find((place) => place.startsWith(`${size}:`));
    const cursor = plot.querySelector(".cursor");
    cursor.setAttribute("transform", `translate(${own.split(":")[1]} 0)`);
    cursor.setAttribute("visibility", "visible");
  }
  const table = section.querySelector(".values");
  const shown = table.cloneNode(true);
  let text = "";
  for (const row of shown.rows) {
    const [first] = row.cells;
    if (row.dataset.size === String(size)) text = first.textContent;
    else if (row.dataset.size) row.hidden = true;
    first.remove();
  }
  for (const row of shown.querySelectorAll("[hidden]")) row.remove();
  shown.createCaption().textContent = `Times at ${text}`;
  section.querySelector(".readout").replaceChildren(shown);
}
