// The other parts of a stream's page.

const WORDS = { ok: 'well', info: 'note', warning: 'needs attention', error: 'needs action' };
const VERDICTS = { exact: 'ok', consistent: 'ok', differs: 'error', 'not provable': 'info' };

function levelOf(stream) {
  if (stream.error && !stream.snapshot) return 'error';
  return stream.error ? 'warning' : stream.snapshot.headline.level;
}

function dot(level) {
  return h('span', { class: `dot ${level}`, role: 'img', 'aria-label': WORDS[level] });
}

function adviceCard(advice, details) {
  return h('div', { class: `advice ${advice.level}` },
    h('p', { class: 'what' }, advice.what),
    h('p', {}, h('strong', {}, 'What to do: '), advice.do),
    advice.command ? command(advice.command) : null, details);
}

function attention(shot, choose) {
  const cards = [];
  const show = (item, what) => h('button', { type: 'button', class: 'link', 'data-key': `show ${what} ${item.epoch}`, onclick: () => choose(item.epoch, true) }, `Show epoch ${item.epoch}`);
  if (shot.refusal) cards.push(h('article', { class: 'card error' }, h('h4', {}, 'The next start would be refused'), adviceCard(shot.refusal)));
  for (const item of shot.held.filter((one) => one.advice.level !== 'info')) {
    const since = item.since === null ? '' : ` for ${age(shot.at - item.since)}`;
    const states = Object.entries(item.sinks).map(([sink, state]) => h('li', {}, h('span', { class: `phase ${state === 'visible' ? 'visible' : 'held'}` }, state), ` ${sink}`));
    cards.push(h('article', { class: 'card warning', 'data-held': item.epoch }, h('h4', {}, `Epoch ${item.epoch} is held${since}`),
      adviceCard(item.advice, [h('ul', { class: 'states' }, states), show(item, 'held')])));
  }
  for (const item of shot.in_doubt.filter((one) => !(shot.driver.running && one.advice.level === 'info'))) {
    const attempts = item.attempts.map(([generation, at]) => h('li', {}, `generation ${generation}, prepared `, moment(at)));
    cards.push(h('article', { class: `card ${item.advice.level}`, 'data-doubt': item.epoch }, h('h4', {}, `Epoch ${item.epoch} is in doubt`),
      adviceCard(item.advice, [h('ul', { class: 'states' }, attempts), show(item, 'doubt')])));
  }
  return cards.length ? section('Needs attention', h('div', { class: 'cards' }, cards)) : null;
}

function driverText(shot, now) {
  const driver = shot.driver;
  const process = driver.pid === null ? '' : `pid ${driver.pid} on ${driver.host || NONE}, `;
  const state = { alive: `alive, ${driver.doing || 'running'}`, none: 'stopped by a command', unknown: 'not known whether it runs' }[driver.liveness] || driver.liveness;
  const seen = driver.seen === null ? '' : `, seen ${age(now - driver.seen)} ago`;
  return `${process}generation ${driver.generation}: ${state}${seen}`;
}

function facts(shot, now) {
  const below = (text) => h('span', { class: 'dim below' }, text);
  const waiting = [
    ...(shot.unpublished ? [`${counted(shot.unpublished.parts, 'open part')} cannot be read yet`] : []),
    ...shot.uncounted.map((sink) => `whether ${sink} has open parts was not checked`),
  ];
  const pairs = [
    ['Driver', driverText(shot, now)],
    ['Started', [moment(shot.driver.started), shot.driver.version ? below(`epochal ${shot.driver.version}`) : null]],
    ['Spark committed', [`epoch ${number(shot.committed)}`, below(`${shot.commit} mode`)]],
    waiting.length ? ['Settled', [`epoch ${number(shot.done)}`, ...waiting.map(below)]]
      : ['In every sink', `epoch ${number(shot.done)}`],
    ['Journal', [counted(shot.journal.records, 'record'), below(size(shot.journal.bytes))]],
  ];
  return h('dl', { class: 'facts' }, pairs.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

function sinks(shot) {
  const rows = shot.sinks.map((sink) => [
    [sink.name, sink.current ? null : h('span', { class: 'dim' }, ' former')], sink.kind, number(sink.last),
    h('span', { class: sink.behind ? 'bad' : null }, sink.current ? String(sink.behind) : NONE),
    lasting(sink.lag), number(sink.rows_per_second),
    sink.held || sink.error ? h('span', { class: sink.available ? 'bad' : 'dim' }, sink.held || sink.error) : 'answers',
    h('code', { class: 'target' }, sink.target),
  ]);
  return section('Sinks', table(['Sink', 'Type', 'Epoch', 'Behind', 'Lag', 'Rows/s', 'Store', 'Target'], rows,
    { right: ['Epoch', 'Behind', 'Lag', 'Rows/s'], label: 'sinks' }));
}

function openParts(shot) {
  if (!shot.open_count) return null;
  const rows = shot.open.map((part) => [part.sink, h('code', {}, part.bucket || NONE), size(part.bytes), number(part.rows), number(part.pieces),
    age(shot.at - part.first), age(shot.at - part.last)]);
  const more = shot.open_count - shot.open.length;
  return section('Open parts', h('p', { class: 'dim' }, 'Committed rows that nobody can read before their part rolls.'),
    table(['Sink', 'Bucket', 'Size', 'Rows', 'Pieces', 'Age', 'Idle'], rows, { right: ['Size', 'Rows', 'Pieces', 'Age', 'Idle'], label: 'open parts' }),
    more > 0 ? h('p', { class: 'dim' }, `and ${counted(more, 'more part')}`) : null);
}

function sparkState(shot) {
  if (!shot.spark_state || !shot.spark_state.operators.length) return null;
  const state = shot.spark_state;
  const rows = state.operators.map((one) => [number(one.operator), one.name, one.provider || NONE, number(one.partitions),
    one.rows === null ? NONE : `${one.rows_exact ? '' : '~'}${number(one.rows)}`, size(one.bytes),
    one.missing ? h('span', { class: 'bad' }, `${number(one.extent)}, ${counted(one.missing, 'version')} missing`) : number(one.extent),
    one.replay_bytes ? `${number(one.replay_rows)} rows, ${size(one.replay_bytes)}` : 'none', one.skew === null ? NONE : one.skew.toFixed(2)]);
  return section('Spark\u2019s state',
    h('p', { class: 'dim' }, `A recovery would take ${lasting(state.recovery)}${state.measured ? '' : ', by guesses: epochal plan-recovery measures this machine'}. Extent: versions that it replays.`),
    table(['Operator', 'Name', 'Provider', 'Partitions', 'Rows', 'Bytes', 'Extent', 'Replay', 'Skew'], rows,
      { right: ['Operator', 'Partitions', 'Rows', 'Bytes', 'Extent', 'Skew'], label: 'state of Spark\u2019s operators' }));
}

function notes(shot) {
  return shot.notes.length ? section('Notes', h('ul', { class: 'findings' }, shot.notes.map((note) => h('li', {}, note)))) : null;
}

function leftovers(shot) {
  if (!shot.leftover_count) return null;
  const rows = shot.leftovers.map((left) => [left.sink, number(left.epoch), number(left.generation), left.state, left.rule, left.why]);
  return section('Staged data', h('details', { 'data-key': 'leftovers' },
    h('summary', {}, `${counted(shot.leftover_count, 'staged attempt')} in the stores`),
    table(['Sink', 'Epoch', 'Generation', 'State', 'Rule', 'Why'], rows, { right: ['Epoch', 'Generation'], label: 'staged data' })));
}

function quoted(path) {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", `'"'"'`)}'`;
}

function audit(stream, live, start) {
  const last = stream.audit;
  const running = last && last.state === 'running';
  const button = live ? h('button', { type: 'button', class: 'primary', 'data-key': 'audit', disabled: running, onclick: start },
    running ? 'Auditing\u2026' : 'Run a fast audit') : null;
  let result = h('p', { class: 'dim' }, live ? 'Not audited since this page was started.' : 'No audit was run for this report (epochal report --audit).');
  if (running) result = h('p', { class: 'dim' }, `Began ${clock(last.since)} UTC.`);
  if (last && last.state === 'failed') result = h('p', { class: 'notice error' }, `The audit failed: ${last.error}`);
  if (last && last.state === 'done') result = auditResult(last.result);
  return section('Audit',
    h('p', { class: 'dim' }, 'Does every sink hold exactly the rows that were staged? A fast audit checks names, lengths and logs, and reads no rows. A full one counts and digests them:'),
    command(`epochal audit ${quoted(stream.checkpoint)}`), button, h('div', { role: 'status', id: 'audit-result' }, result));
}

function auditResult(result) {
  const rows = result.sinks.map((sink) => [
    [sink.name, sink.current ? null : h('span', { class: 'dim' }, ' former')], number(sink.epochs), number(sink.rows.expected), number(sink.rows.found),
    sink.digest.compared, h('span', { class: `badge ${VERDICTS[sink.verdict]}` }, sink.verdict)]);
  const where = (sink, one) => (one.file !== null ? `${sink.name}: ${one.file}` : one.epoch !== null ? `${sink.name}: epoch ${one.epoch}` : sink.name);
  const list = (title, lines) => (lines.length ? [h('h4', {}, title), h('ul', { class: 'findings' }, lines.slice(0, 100).map((line) => h('li', {}, line)))] : []);
  return [
    h('p', {}, h('span', { class: `badge ${VERDICTS[result.verdict]}` }, result.verdict),
      ` ${result.through === null ? 'no epoch yet' : `up to epoch ${result.through}`}; ${result.fast ? 'fast audit' : 'full audit'} of `, moment(result.at), ` UTC, ${lasting(result.seconds)}`),
    table(['Sink', 'Epochs', 'Rows staged', 'Rows found', 'Digest', 'Verdict'], rows, { right: ['Epochs', 'Rows staged', 'Rows found'], label: 'the audit of each sink' }),
    list('Differs', result.sinks.flatMap((sink) => sink.differences.map((one) => `${where(sink, one)}: ${one.what}`))),
    list('Not provable', result.sinks.flatMap((sink) => sink.not_provable.map((why) => `${sink.name}: ${why}`))),
    list('Notes', result.sinks.flatMap((sink) => sink.notes.map((note) => `${sink.name}: ${note}`))),
  ].flat();
}
