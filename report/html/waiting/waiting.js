// Shows the progress of the server in reading a trace. The address stays unchanged, so that its view is shown once the trace is read.

const at = id => document.getElementById(id), every = 150;

function say(problem, before) {
  at('problem').textContent = problem;
  at('problem').hidden = false;
  at('share').hidden = at('text').hidden = true;
  at('back').hidden = !before;
  document.title = 'Not read – whylate';
}

async function follow() {
  let p;
  try {
    p = await (await fetch('api/reading')).json();
  } catch {
    return say('The server does not answer: it was stopped. Its terminal says why.', false);
  }
  if (p.error) return say(p.error, p.before);
  if (!p.reading) return location.reload();
  if (p.label) at('label').textContent = 'reads ' + p.label;
  at('text').textContent = p.text || '';
  if (p.share >= 0) at('share').value = p.share; else at('share').removeAttribute('value');
  if (p.share >= 0) document.title = `${Math.round(p.share * 100)}% – whylate`;
  setTimeout(follow, every);
}

at('back').firstChild.addEventListener('click', () => location.reload());
follow();
