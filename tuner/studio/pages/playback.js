// Time of a call: play, pause, step, and which chunk is followed.
import { h } from "./dom.js";
import { formatTime } from "./format.js";

const DURATIONS = [10, 20, 60, 180]; // seconds in which the whole call is played

export class Playback {
  constructor({ onTime, onFollow }) {
    this.onTime = onTime;
    this.onFollow = onFollow;
    const button = (text, label, click) => h("button", { type: "button", title: label, "aria-label": label, click }, text);
    this.button = button("Play", "Play", () => (this.isPlaying ? this.#pause() : this.play()));
    this.slider = h("input", {
      id: "time", type: "range", min: 0, step: 1, "aria-label": "Time",
      input: () => { this.stop(); this.setTime(this.slider.valueAsNumber, true); },
    });
    this.output = h("output", { for: "time" });
    this.duration = h("select", { id: "duration" }, DURATIONS.map((seconds) =>
      h("option", { value: seconds, selected: seconds === DURATIONS[1] }, `${seconds} s`)));
    const follow = () => this.#followed();
    this.follow = h("input", { id: "follow", type: "checkbox", change: follow });
    this.chunk = h("input", { id: "chunk", type: "number", min: 0, "aria-label": "Chunk", change: follow });
    this.rank = h("input", { id: "origin", type: "number", min: 0, change: () => this.#rankChosen() });
    this.hint = h("span.error", { role: "status" });
    this.element = h("section.card.playback", { "aria-label": "Time and chunk" },
      h("div.tools", {},
        button("|◂", "Back to the beginning", () => { this.stop(); this.setTime(0, true); }),
        button("◂ Step", "Step back", () => this.step(false)),
        this.button,
        button("Step ▸", "Step", () => this.step(true)),
        this.slider, this.output,
        h("span.labelled", {}, h("label", { for: "duration" }, "whole call in"), this.duration)),
      h("div.tools", {},
        h("span.labelled", {}, this.follow, h("label", { for: "follow" }, "Follow chunk"), this.chunk),
        h("span.labelled", {}, h("label", { for: "origin" }, "from rank"), this.rank), this.hint));
  }

  show(model, state) {
    this.stop();
    this.model = model;
    this.time = Math.min(state.at, model.end);
    this.slider.max = model.end;
    this.slider.value = this.time;
    const [rank, chunk] = state.follow ?? model.firstChunk;
    Object.assign(this.rank, { max: model.ranks - 1, value: rank });
    Object.assign(this.chunk, { max: model.record.chunks - 1, value: chunk });
    this.follow.checked = state.isFollowing;
    this.hint.textContent = "";
    this.#showTime();
  }

  setTime(time, isStep) {
    this.time = Math.min(this.model.end, Math.max(0, time));
    this.slider.value = this.time;
    this.#showTime();
    this.onTime(this.time, isStep);
  }

  #showTime() {
    this.output.textContent = formatTime(this.model.seconds(this.time));
    this.slider.setAttribute("aria-valuetext", this.output.textContent);
  }

  step(forwards) {
    this.stop();
    this.setTime(this.model.stepFrom(this.time, forwards), true);
  }

  play() {
    if (this.time >= this.model.end) this.time = 0;
    this.isPlaying = true;
    this.#name("Pause");
    let last = performance.now();
    const advance = (now) => {
      if (!this.isPlaying) return;
      const ticks = ((now - last) / 1000 / Number(this.duration.value)) * this.model.end;
      last = now;
      this.setTime(this.time + Math.max(0, ticks), false);
      if (this.time < this.model.end) requestAnimationFrame(advance);
      else this.#pause();
    };
    requestAnimationFrame(advance);
  }

  /** Stop where the call is, as after a step. */
  #pause() {
    this.stop();
    this.onTime(this.time, true);
  }

  /** Stop without a word, as the time is about to change or the call is another one. */
  stop() {
    if (!this.isPlaying) return;
    this.isPlaying = false;
    this.#name("Play");
  }

  #name(text) {
    this.button.textContent = text;
    this.button.title = text;
    this.button.setAttribute("aria-label", text);
  }

  /** Take the first chunk of another rank, as it may not hold the one that is followed. */
  #rankChosen() {
    const rank = this.rank.valueAsNumber;
    if (this.rank.checkValidity() && !this.model.holdsAtFirst(rank, this.chunk.valueAsNumber)) {
      this.chunk.value = this.model.firstChunkOf(rank);
    }
    this.#followed();
  }

  #followed() {
    const follow = [this.rank.valueAsNumber, this.chunk.valueAsNumber];
    const { root, holders } = this.model.record;
    const isValid = this.rank.checkValidity() && this.chunk.checkValidity() && !follow.some(Number.isNaN);
    const isHeld = isValid && this.model.holdsAtFirst(...follow);
    this.hint.textContent = !isValid ? `ranks are 0 to ${this.rank.max}, chunks 0 to ${this.chunk.max}`
      : isHeld ? "" : holders === "root" ? `at the beginning only rank ${root} has chunks`
      : `rank ${follow[0]} does not have chunk ${follow[1]} at the beginning`;
    if (isHeld) this.onFollow({ follow, isFollowing: this.follow.checked });
  }
}
