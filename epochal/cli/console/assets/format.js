// Numbers and times as people read them. Times are UTC.

const NONE = '\u2013';

function clock(seconds) {
  return seconds === null || seconds === undefined ? NONE : new Date(seconds * 1000).toISOString().slice(11, 19);
}

function moment(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  const text = new Date(seconds * 1000).toISOString();
  return h('time', { datetime: text }, `${text.slice(0, 10)} ${text.slice(11, 19)}`);
}

function lasting(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  for (const [unit, length] of [['days', 86400], ['h', 3600], ['min', 60]]) {
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

// How long ago: no fractions, which would flicker.
function age(seconds) {
  return seconds < 10 ? `${Math.max(0, Math.floor(seconds))} s` : lasting(seconds);
}

function size(bytes) {
  if (bytes === null || bytes === undefined) return NONE;
  for (const [unit, factor] of [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]]) {
    if (bytes >= factor) return `${(bytes / factor).toFixed(1)} ${unit}`;
  }
  return `${bytes} bytes`;
}

function number(value) {
  return value === null || value === undefined ? NONE : Math.round(value).toLocaleString('en-US');
}

function counted(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? '' : 's'}`;
}

// The shortest end of each path that tells it from the others.
function namesOf(paths) {
  const parts = paths.map((path) => path.split('/').filter(Boolean));
  return parts.map((own, index) => {
    let length = /^_?checkpoints?$/.test(own[own.length - 1] || '') ? 2 : 1;
    const tail = (other) => other.slice(-length).join('/');
    while (length < own.length && parts.some((other, place) => place !== index && tail(other) === tail(own))) length += 1;
    return tail(own) || paths[index];
  });
}
