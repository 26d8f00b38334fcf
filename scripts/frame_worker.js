// A page that is opened as a file may not start a worker: its script runs in a hidden frame then, which is search alone.
if (location.protocol === "file:") {
  window.Worker = class FrameWorker extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      this.waiting = [];
      this.addEventListener("message", (event) => this.onmessage && this.onmessage(event));
      const start = () => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        document.body.append(frame);
        const inner = frame.contentWindow;
        inner.postMessage = (data) => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })));
        const load = (url) =>
          new Promise((resolve, reject) => {
            const script = inner.document.createElement("script");
            Object.assign(script, { src: new URL(url, document.baseURI).href, onload: resolve, onerror: reject });
            inner.document.head.append(script);
          });
        inner.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => load(url)), Promise.resolve());
        inner.iframeWorker = inner;
        load(String(address)).then(() => {
          this.postMessage = (data) => setTimeout(() => inner.dispatchEvent(new inner.MessageEvent("message", { data: structuredClone(data) })));
          this.waiting.forEach(this.postMessage);
        });
      };
      document.body ? start() : addEventListener("DOMContentLoaded", start);
    }
    postMessage(data) {
      this.waiting.push(data);
    }
    terminate() {}
  };
}
