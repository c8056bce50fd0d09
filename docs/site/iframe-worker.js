/* A page that is opened as a file can start no worker. The search then runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.window = frame.contentWindow;
      const page = this.window.document;
      page.open();
      this.window.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve) => (this.window.workerIsReady = resolve));
      page.write(`<script src="${url}"></script><script>workerIsReady()</script>`);
      page.close();
    }
    postMessage(data) {
      this.ready.then(() => this.window.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
