// Draws the data of the page, and fetches newer data if there is a server.

const THEMES = ['auto', 'light', 'dark'];
const state = { data: JSON.parse(document.getElementById('data').textContent), stream: 0, epoch: null, at: Date.now() };

function chooseStream(index) {
  state.stream = index;
  state.epoch = null;
  location.replace(`#${index}`);
  draw();
  document.getElementById('stream').focus({ preventScroll: true });
  if (matchMedia('(max-width: 860px)').matches) document.getElementById('stream').scrollIntoView();
  else scrollTo(0, 0);
}

function chooseEpoch(epoch, follow) {
  state.epoch = state.epoch === epoch && !follow ? null : epoch;
  draw();
  const details = document.getElementById('epoch-details');
  if (details && follow) details.focus();
  if (details) details.scrollIntoView({ block: 'nearest' });
}

// The server's clock, so that ages are right whatever the clock of this machine says.
function now() {
  return state.data.at + (state.data.live ? (Date.now() - state.at) / 1000 : 0);
}

function drawList(names) {
  const streams = state.data.streams;
  const rows = streams.map((stream, index) => {
    const shot = stream.snapshot;
    const behind = shot ? Math.max(0, ...shot.sinks.map((sink) => sink.behind)) : 0;
    return h('li', {}, h('button', {
      type: 'button', class: 'stream', 'aria-current': index === state.stream ? 'true' : null, 'data-key': `stream ${index}`, onclick: () => chooseStream(index),
    }, dot(levelOf(stream)), h('span', { class: 'name' }, names[index]),
    h('span', { class: 'short' }, shot ? `epoch ${number(shot.done)}${behind ? `, ${behind} behind` : ''}` : 'cannot be read'),
    h('span', { class: 'verdict' }, stream.error || shot.headline.text)));
  });
  const list = document.getElementById('streams');
  list.hidden = streams.length < 2;
  put(list, [h('ul', {}, rows)]);
}

function drawStream(names) {
  const stream = state.data.streams[state.stream];
  const shot = stream.snapshot;
  const level = levelOf(stream);
  const parts = [
    h('div', { class: 'title' }, h('h2', {}, names[state.stream]), h('code', { class: 'path' }, stream.checkpoint)),
  ];
  if (stream.error) {
    parts.push(h('p', { class: 'notice error' }, `This stream cannot be read: ${stream.error}`, shot ? [' Shown as of ', moment(shot.at), ' UTC.'] : ''));
  }
  if (shot) {
    const epoch = shot.epochs.find((one) => one.epoch === state.epoch);
    parts.push(
      h('div', { class: `headline ${level}` }, dot(shot.headline.level), h('p', {}, shot.headline.text),
        shot.headline.command ? command(shot.headline.command) : null),
      facts(shot, now()),
      attention(shot, chooseEpoch),
      timeline(shot, state.epoch, chooseEpoch),
      epoch ? epochDetails(shot, epoch, () => chooseEpoch(state.epoch)) : null,
      sinks(shot),
      openParts(shot),
      sparkState(shot),
      audit(stream, state.data.live, startAudit),
      leftovers(shot),
      notes(shot),
    );
  }
  put(document.getElementById('stream'), parts);
}

function draw() {
  const streams = state.data.streams;
  const names = namesOf(streams.map((stream) => stream.checkpoint));
  const troubled = streams.filter((stream) => ['warning', 'error'].includes(levelOf(stream))).length;
  const summary = `${counted(streams.length, 'stream')}${troubled ? `, ${troubled} need${troubled === 1 ? 's' : ''} attention` : ''}`;
  const summaryBox = document.getElementById('summary');
  if (summaryBox.textContent !== summary) summaryBox.textContent = summary;
  const at = new Date(state.data.at * 1000).toISOString();
  document.getElementById('freshness').textContent = state.data.live
    ? `live, ${at.slice(11, 19)} UTC` : `report of ${at.slice(0, 10)} ${at.slice(11, 19)} UTC, epochal ${state.data.version}`;
  document.title = `${troubled ? `(${troubled}) ` : ''}epochal: ${names[state.stream]}`;
  drawList(names);
  drawStream(names);
}

async function refresh() {
  const offline = document.getElementById('offline');
  try {
    const answer = await fetch('api/streams', { cache: 'no-store' });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const fresh = await answer.json();
    offline.hidden = true;
    if (!isSelectingText()) {
      state.data = { ...state.data, ...fresh };
      state.at = Date.now();
      draw();
    }
  } catch (fault) {
    offline.textContent = `epochal ui does not answer (${fault.message}). What is below is from ${clock(state.data.at)} UTC.`;
    offline.hidden = false;
  }
  setTimeout(refresh, document.hidden ? 10000 : 1000);
}

async function startAudit() {
  const index = state.stream;
  const answer = await fetch(`api/audit/${index}`, { method: 'POST', headers: { 'X-Epochal': 'audit' } });
  const begun = await answer.json();
  state.data.streams[index].audit = answer.ok ? begun : { state: 'failed', error: begun.error };
  draw();
}

function remembered() {
  try {
    return localStorage.getItem('epochal-theme');
  } catch {
    return null;  // a file may have no storage
  }
}

function setTheme(theme) {
  const chosen = THEMES.includes(theme) ? theme : 'auto';
  document.documentElement.dataset.theme = chosen;
  document.getElementById('theme').textContent = `Theme: ${chosen}`;
  try {
    localStorage.setItem('epochal-theme', chosen);
  } catch {
    // Only this page has it then.
  }
}

document.getElementById('theme').addEventListener('click', () => {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && state.epoch !== null) chooseEpoch(state.epoch);
});
addEventListener('resize', draw);
setTheme(remembered());
state.stream = Math.min(Number.parseInt(location.hash.slice(1), 10) || 0, state.data.streams.length - 1);
draw();
document.querySelectorAll('.lanes').forEach((lanes) => { lanes.scrollLeft = lanes.scrollWidth; });
if (state.data.live) setTimeout(refresh, 1000);
