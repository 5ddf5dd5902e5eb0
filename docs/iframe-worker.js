// Browsers refuse workers to pages that come from a file. There, the search of the site runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...addresses) =>
        addresses.reduce((before, one) => before.then(() => this.load(new URL(one, address).href)), Promise.resolve());
      this.load(new URL(address, location.href).href).then(() => {
        this.waiting.forEach((data) => this.tell(data));
        this.waiting = null;
      });
    }

    load(address) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        script.src = address;
        script.onload = done;
        script.onerror = failed;
        this.inside.document.body.append(script);
      });
    }

    tell(data) {
      this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.tell(data);
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
