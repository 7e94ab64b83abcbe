// The answers that the what-if page has asked for, by question.
import { Answer } from "./answer.js";
import { Refused, streamLines } from "./api.js";
import { sentence } from "./format.js";

const MAX_ANSWERS = 60; // that are kept

export class Answers {
  constructor() {
    this.whole = new Map(); // JSON of a question -> its answer
    this.growing = new Map(); // JSON of a question -> its answer so far, or the problem in its place
  }

  /** Return the whole answer to a question, undefined where it is not here. */
  get(question) {
    return this.whole.get(JSON.stringify(question));
  }

  /** Return what is known of a question: {answer, problem}. */
  known(question) {
    const found = this.get(question) ?? this.growing.get(JSON.stringify(question));
    if (found instanceof Refused) return { problem: sentence(found.message) };
    return { answer: found?.isUseful ? found : null };
  }

  /** Return whether nothing more will be known of a question. */
  isKnown(question) {
    return this.get(question) !== undefined || this.known(question).problem !== undefined;
  }

  /**
   * Ask a question, schedules with the labels `first` before others. `onLine` gets the answer so far.
   * An answer that is asked for `ahead` waits for all others.
   */
  async ask(question, signal, { first = [], ahead = false, onLine = (_) => {}, answer = new Answer() } = {}) {
    await streamLines("/v1/what-if", { ...question, first, ahead }, signal, (line) => {
      if (line.kind === "problem") throw new Refused(line.status, line.detail);
      answer.add(line);
      if (answer.ended) this.#keep(question, answer);
      onLine(answer);
    });
  }

  #keep(question, answer) {
    this.whole.set(JSON.stringify(question), answer);
    if (this.whole.size > MAX_ANSWERS) this.whole.delete(this.whole.keys().next().value);
  }

  /** Ask questions one after another; a problem takes the place of an answer. */
  async askAll(questions, signal, onChange) {
    for (const question of questions) {
      const key = JSON.stringify(question);
      if (this.whole.has(key) || isLasting(this.growing.get(key))) continue;
      const answer = new Answer();
      this.growing.set(key, answer);
      try {
        await this.ask(question, signal, { answer, onLine: onChange });
        this.growing.delete(key);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        this.growing.set(key, error);
        onChange();
      }
    }
  }
}

/** Return whether a problem stays when the same is asked again. */
function isLasting(problem) {
  return problem instanceof Refused && [404, 422].includes(problem.status);
}
