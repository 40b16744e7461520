// The chart of epochs: a lane a sink, a column an epoch, in each column the time that every step took.

const STEPS = [
  ['stage', 'staging'],
  ['wait', 'waiting for other sinks'],
  ['checkpoint', 'Spark\u2019s checkpoint'],
  ['publish', 'until visible'],
];
const PENDING = {
  staging: 'being staged', staged: 'staged', interrupted: 'interrupted while it was staged', prepared: 'prepared, in doubt', committing: 'being committed',
  held: 'held', unknown: 'store does not answer', visible: 'visible',
};
const WIDTHS = [12, 26];  // of a column
const LANE = 64;
const AXIS = 20;
const HINT = 'Hover over an epoch, or click it for details. Arrow keys move.';
let hintText = HINT;  // stays when the chart is drawn again

// The steps of one epoch in one sink: [name, start, end]. Without a live file the first two are not known.
function stepsOf(epoch, sink) {
  const own = epoch.sinks[sink];
  const staged = own.staged === null ? epoch.prepared : own.staged;
  return [
    ['stage', epoch.begun, own.staged === null ? null : staged],
    ['wait', own.staged, epoch.prepared],
    ['checkpoint', epoch.prepared, epoch.checkpointed],
    ['publish', epoch.checkpointed, own.visible],
  ].filter(([, start, end]) => start !== null && end !== null && end >= start);
}

function total(steps) {
  return steps.reduce((sum, [, start, end]) => sum + end - start, 0);
}

// One slow epoch must not flatten all others: what is far above the usual is cut off, and marked.
function scaleOf(epochs, sinks) {
  const totals = epochs.flatMap((epoch) => sinks.filter((sink) => epoch.sinks[sink]).map((sink) => total(stepsOf(epoch, sink))));
  const sorted = totals.filter((value) => value > 0).sort((a, b) => a - b);
  if (!sorted.length) return 1;
  const usual = sorted[Math.floor(sorted.length * 0.75)];
  return Math.min(sorted[sorted.length - 1], usual * 2) || 1;
}

function describe(epoch, sink) {
  const own = epoch.sinks[sink];
  const steps = stepsOf(epoch, sink).map(([name, start, end]) => `${STEPS.find(([step]) => step === name)[1]} ${lasting(end - start)}`);
  const rows = own.rows === null ? [] : [counted(own.rows, 'row')];
  return [`epoch ${epoch.epoch} in ${sink}: ${PENDING[own.phase]}`, ...rows, ...steps].join(', ');
}

function column(epoch, sink, x, width, scale, chosen, first) {
  const own = epoch.sinks[sink];
  const label = describe(epoch, sink);
  const group = s('g', {
    class: `epoch ${own.phase}${chosen === epoch.epoch ? ' chosen' : ''}`, role: 'button', tabindex: first ? 0 : -1,
    'aria-label': label, 'aria-pressed': String(chosen === epoch.epoch),
    'data-key': `epoch ${epoch.epoch} ${sink}`, 'data-epoch': epoch.epoch, 'data-sink': sink,
  });
  group.append(s('rect', { class: 'back', x, y: 0, width: width, height: LANE }));
  if (own.phase === 'visible') {
    let y = LANE - 2;
    const steps = stepsOf(epoch, sink);
    const room = LANE - 8;
    const shrink = Math.min(1, scale / (total(steps) || 1));
    for (const [name, start, end] of steps) {
      const height = Math.max(((end - start) / scale) * room * shrink, 0.75);
      y -= height;
      group.append(s('rect', { class: name, x: x + 2, y, width: width - 4, height }));
    }
    if (!steps.length) group.append(s('rect', { class: 'publish', x: x + 2, y: LANE - 6, width: width - 4, height: 4 }));
    if (shrink < 1) group.append(s('path', { class: 'cut', d: `M${x + 2} ${y + 7} l${width - 4} -4 v2.5 l-${width - 4} 4 z` }));
  } else {
    group.append(s('rect', { class: 'pending', x: x + 2, y: 4, width: width - 4, height: LANE - 6, rx: 2 }));
    const letter = { prepared: '?', held: '!', unknown: '!', interrupted: '\u00d7' }[own.phase] || '\u2026';
    group.append(s('text', { x: x + width / 2, y: LANE / 2 + 5, 'text-anchor': 'middle' }, letter));
  }
  return group;
}

function lane(epochs, sink, step, scale, chosen, first, restarts) {
  const width = epochs.length * step;
  const drawn = s('svg', { class: 'lane', width, height: LANE, viewBox: `0 0 ${width} ${LANE}`, role: 'group', 'aria-label': `epochs in ${sink}` });
  epochs.forEach((epoch, index) => {
    if (epoch.sinks[sink]) drawn.append(column(epoch, sink, index * step, step, scale, chosen, first === epoch.epoch));
  });
  for (const index of restarts) drawn.append(s('line', { class: 'restart', x1: index * step, x2: index * step, y1: 0, y2: LANE }));
  return drawn;
}

function axis(epochs, step, restarts) {
  const width = epochs.length * step;
  const drawn = s('svg', { class: 'axis', width, height: restarts.length ? AXIS + 14 : AXIS, 'aria-hidden': 'true' });
  const every = String(epochs[epochs.length - 1].epoch).length > 4 ? 10 : 5;
  epochs.forEach((epoch, index) => {
    if (epoch.epoch % every) return;
    drawn.append(s('text', { x: index * step + step / 2, y: 13, 'text-anchor': 'middle' }, String(epoch.epoch)));
  });
  for (const index of restarts) {
    const x = index * step;
    const anchor = x < 40 ? 'start' : width - x < 40 ? 'end' : 'middle';
    drawn.append(s('text', { class: 'restart', x: anchor === 'end' ? width : x, y: 29, 'text-anchor': anchor }, `generation ${epochs[index].generation}`));
  }
  return drawn;
}

function timeline(shot, chosen, choose) {
  const epochs = shot.epochs;
  const sinks = shot.sinks.filter((sink) => epochs.some((epoch) => epoch.sinks[sink.name])).map((sink) => sink.name)
    .filter((name, index, all) => all.indexOf(name) === index);
  if (!epochs.length || !sinks.length) return section('Epochs', h('p', { class: 'dim' }, 'No epoch yet.'));
  const scale = scaleOf(epochs, sinks);
  const restarts = epochs.map((epoch, index) => index).filter((index) => index > 0 && epochs[index].generation !== epochs[index - 1].generation);
  const room = document.getElementById('stream').clientWidth - 170;
  const step = Math.min(WIDTHS[1], Math.max(WIDTHS[0], Math.floor(room / epochs.length)));
  const known = epochs.some((epoch) => epoch.epoch === chosen);
  const first = known ? chosen : epochs[epochs.length - 1].epoch;
  const hint = h('output', { class: 'hint', 'aria-live': 'off' }, hintText);
  const tell = (event) => {
    const column_ = event.target.closest('.epoch');
    hintText = column_ ? column_.getAttribute('aria-label') : HINT;
    hint.textContent = hintText;
  };
  const pick = (event) => {
    const column_ = event.target.closest('.epoch');
    if (column_) choose(Number(column_.dataset.epoch));
  };
  const chart = h('div', { class: 'chart', onpointerover: tell, onfocusin: tell, onclick: pick, onkeydown: (event) => move(event, epochs, sinks, pick) },
    h('div', { class: 'names' }, sinks.map((sink) => h('div', { class: 'lane-name' }, sink))),
    h('div', { class: 'lanes', 'data-scroll': 'lanes' },
      sinks.map((sink, index) => lane(epochs, sink, step, scale, chosen, index === 0 ? first : null, restarts)), axis(epochs, step, restarts)));
  return section('Epochs', legend(scale, epochs), chart, hint);
}

function move(event, epochs, sinks, pick) {
  const column_ = event.target.closest('.epoch');
  if (!column_) return;
  if (event.key === 'Enter' || event.key === ' ') {
    event.preventDefault();
    pick(event);
    return;
  }
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!steps) return;
  event.preventDefault();
  const across = epochs.findIndex((epoch) => epoch.epoch === Number(column_.dataset.epoch)) + steps[0];
  const down = sinks.indexOf(column_.dataset.sink) + steps[1];
  const target = epochs[across] && event.currentTarget.querySelector(
    `[data-key="${CSS.escape(`epoch ${epochs[across].epoch} ${sinks[down]}`)}"]`);
  if (!target) return;
  column_.setAttribute('tabindex', '-1');
  target.setAttribute('tabindex', '0');
  target.focus();
}

function legend(scale, epochs) {
  const pending = [['prepared', 'in doubt'], ['held', 'held']]
    .filter(([phase]) => epochs.some((epoch) => Object.values(epoch.sinks).some((own) => own.phase === phase)));
  const item = (kind, text) => h('li', {}, h('span', { class: `swatch ${kind}` }), text);
  return h('ul', { class: 'legend' }, STEPS.map(([kind, text]) => item(kind, text)), pending.map(([kind, text]) => item(kind, text)),
    h('li', { class: 'dim' }, `full height: ${lasting(scale)}`));
}

// One epoch: a bar a sink on a common clock.
function epochDetails(shot, epoch, close) {
  const sinks = Object.keys(epoch.sinks);
  const times = sinks.flatMap((sink) => stepsOf(epoch, sink).flatMap(([, start, end]) => [start, end]));
  const zero = Math.min(...times);
  const span = Math.max(...times) - zero || 1;
  const since = (at) => (at === null ? NONE : `+${lasting(Math.max(0, at - zero))}`);
  const bar = (sink) => s('svg', { class: 'bar-chart', viewBox: '0 0 300 14', preserveAspectRatio: 'none', role: 'img', 'aria-label': describe(epoch, sink) },
    stepsOf(epoch, sink).map(([name, start, end]) =>
      s('rect', { class: name, x: ((start - zero) / span) * 300, y: 2, width: Math.max(((end - start) / span) * 300, 1), height: 10 })));
  const rows = sinks.map((sink) => {
    const own = epoch.sinks[sink];
    return [sink, h('span', { class: `phase ${own.phase}` }, PENDING[own.phase]), number(own.rows), size(own.bytes),
      since(own.staged), since(own.visible), times.length ? bar(sink) : NONE];
  });
  const advice = [...shot.held, ...shot.in_doubt].find((item) => item.epoch === epoch.epoch);
  return h('section', { class: 'epoch-details', id: 'epoch-details', 'aria-labelledby': 'epoch-title', tabindex: -1 },
    h('h3', { id: 'epoch-title' }, `Epoch ${epoch.epoch}`),
    h('button', { type: 'button', class: 'close', 'data-key': 'close', onclick: close, 'aria-label': 'close the details' }, 'Close'),
    h('p', { class: 'dim' },
      `${PENDING[epoch.phase][0].toUpperCase()}${PENDING[epoch.phase].slice(1)}. Generation ${epoch.generation === null ? NONE : epoch.generation}`,
      epoch.generations.length > 1 ? `; generations ${epoch.generations.join(', ')} have prepared it` : '', '. ',
      epoch.begun === null ? '' : ['Begun ', moment(epoch.begun), '. '],
      'Prepared ', moment(epoch.prepared), ', checkpointed ', clock(epoch.checkpointed), ', done ', clock(epoch.done), ' UTC.'),
    advice ? adviceCard(advice.advice, null) : null,
    table(['Sink', 'State', 'Rows', 'Size', 'Staged', 'Visible', 'Time'], rows, { right: ['Rows', 'Size', 'Staged', 'Visible'], label: 'the epoch in each sink' }));
}
