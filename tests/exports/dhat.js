// Loads a file into DHAT's own viewer, as a browser would: node dhat.js dh_view.js FILE
// Prints what the viewer adds up at the root, as JSON. A file that the viewer refuses is an error.
'use strict';
const fs = require('fs');
const vm = require('vm');

// As much of a document as the viewer touches.
class Element {
  constructor() {
    this.childNodes = [];
    this.classList = {add() {}, remove() {}, contains: () => false, toggle() {}};
    this.style = {};
    this.text = '';
  }
  appendChild(child) {
    child.parentNode = this;
    this.childNodes.push(child);
    return child;
  }
  addEventListener() {}
  cloneNode() { return new Element(); }
  replaceChild(now, before) {
    now.parentNode = this;
    this.childNodes = this.childNodes.map((child) => child === before ? now : child);
  }
  set className(value) {}
  set textContent(value) { this.text = value; this.childNodes = []; }
  get textContent() { return this.text + this.childNodes.map((c) => c.textContent).join(''); }
  get selectedIndex() { return Math.max(0, this.childNodes.findIndex((c) => c.selected)); }
  get options() { return this.childNodes; }
}
const document = {
  body: new Element(),
  location: {search: ''},
  createElement: () => new Element(),
  createTextNode: (text) => Object.assign(new Element(), {text}),
};
const [viewer, file] = process.argv.slice(2);
const context = vm.createContext({document, performance, URLSearchParams, console, Intl});
vm.runInContext(fs.readFileSync(viewer, 'utf8'), context, viewer);
context.text = fs.readFileSync(file, 'utf8');
const root = vm.runInContext(
    'onLoad(); gData = JSON.parse(text); buildTree(); displayTree(0, 0, 0); gRoot', context);
const shown = document.body.textContent;
console.log(JSON.stringify({
  bytes: root._totalBytes,
  blocks: root._totalBlocks,
  peak_bytes: root._atTGmaxBytes,
  live_bytes: root._atTEndBytes,
  live_blocks: root._atTEndBlocks,
  shown,
}));
