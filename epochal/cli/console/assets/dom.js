// Builds elements. Values only ever become text or attributes: nothing here parses markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Replace a section only if it looks different now: a selection, a focus or a hover elsewhere stays.
function put(parent, sections) {
  const fresh = sections.filter(Boolean);
  fresh.forEach((section, index) => {
    const old = parent.children[index];
    if (!old) parent.append(section);
    else if (!old.isEqualNode(section)) replace(old, section);
  });
  while (parent.children.length > fresh.length) parent.lastElementChild.remove();
}

function replace(old, section) {
  const active = document.activeElement;
  const key = old.contains(active) ? active.getAttribute('data-key') : null;
  const scrolled = [...old.querySelectorAll('[data-scroll]')].map((box) => [box.dataset.scroll, box.scrollLeft]);
  const opened = [...old.querySelectorAll('details[open]')].map((box) => box.dataset.key);
  old.replaceWith(section);
  for (const [name, left] of scrolled) {
    const box = section.querySelector(`[data-scroll="${CSS.escape(name)}"]`);
    if (box) box.scrollLeft = left;
  }
  for (const name of opened) {
    const box = section.querySelector(`details[data-key="${CSS.escape(name)}"]`);
    if (box) box.open = true;
  }
  if (key) {
    const again = section.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (again) again.focus({ preventScroll: true });
  }
}

function isSelectingText() {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && selection.toString().length > 0;
}

// A command that can be pasted into a shell, with a button that copies it.
function command(text) {
  const code = h('code', {}, text);
  const button = h('button', { type: 'button', class: 'copy', 'data-key': `copy ${text}`, 'aria-label': `copy: ${text}` }, 'Copy');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
    } catch {
      document.getSelection().selectAllChildren(code);  // a file has no clipboard: select it instead
    }
  });
  return h('div', { class: 'command' }, code, button);
}

function table(headers, rows, options) {
  const right = new Set((options || {}).right || []);
  const cell = (tag, index, content) =>
    h(tag, { class: right.has(headers[index]) ? 'number' : null, scope: tag === 'th' ? 'col' : null,
             'data-label': tag === 'td' ? headers[index] : null }, content);
  return h('div', { class: 'scroll', 'data-scroll': headers.join(' '), tabindex: 0, role: 'region', 'aria-label': (options || {}).label },
    h('table', {},
      h('thead', {}, h('tr', {}, headers.map((header, index) => cell('th', index, header)))),
      h('tbody', {}, rows.map((row) => h('tr', {}, row.map((content, index) => cell('td', index, content)))))));
}

function section(title, ...children) {
  const id = `section-${title.toLowerCase().replace(/[^a-z]+/g, '-')}`;
  return h('section', { 'aria-labelledby': id }, h('h3', { id }, title), children);
}
