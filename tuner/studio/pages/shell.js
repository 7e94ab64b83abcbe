// Commands for a shell, with what the service asks of programs.

let needsToken = false;

/** Have requests of programs carry the token of TUNER_TOKEN, which this service asks for. */
export function addToken() {
  needsToken = true;
}

/** Return a word as a shell takes it. */
export function shellWord(text) {
  return /^[\w./:=,@%+-]+$/.test(text) ? text : quoted(text);
}

/**
 * Return the request of a program for a path of the service.
 *
 * @param {string} path
 * @param {string} words after the address
 * @param {string} options before it
 */
export function curl(path, words = "", options = "-sS") {
  const token = needsToken ? ' -H "Authorization: Bearer $TUNER_TOKEN"' : "";
  return `curl ${options}${token} ${shellWord(location.origin + path)}${words && ` ${words}`}`;
}

/** Return the request of a program that sends a question as JSON. */
export function curlPost(path, question, options) {
  return curl(path, `-H 'Content-Type: application/json' -d ${quoted(JSON.stringify(question))}`, options);
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
