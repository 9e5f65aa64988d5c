// Browsers start no worker for a page that was opened as a file. There, this runs the search in a hidden frame instead,
// so that the built site can be read and searched without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.started = new Promise((resolve) => (this.frame.onload = resolve)).then(() => this.start(url))
      document.body.append(this.frame)
    }

    start(url) {
      const inner = this.frame.contentWindow
      inner.importScripts = (...urls) => urls.reduce((done, next) => done.then(() => this.load(next)), Promise.resolve())
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      return this.load(url)
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script")
        Object.assign(script, { src: url, onload: resolve, onerror: reject })
        this.frame.contentDocument.body.append(script)
      })
    }

    postMessage(data) {
      const inner = this.frame.contentWindow
      this.started.then(() => inner.dispatchEvent(new inner.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
