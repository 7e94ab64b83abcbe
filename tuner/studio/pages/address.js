// The address of a page, which restores it, in the history of the browser.

export class Address {
  /** Take over the address as it is, as at the beginning and after the back button. */
  restore() {
    this.saved = location.pathname + location.search + location.hash;
  }

  /** Show an address; only a finished change gets an entry in the history. */
  save(url, isFinished) {
    if (isFinished && url !== this.saved) {
      history.pushState(null, "", url);
      this.saved = url;
    } else {
      history.replaceState(null, "", url);
    }
  }
}
