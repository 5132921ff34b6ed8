/** What a configuration changes, as a person reads it: one sign per thing, its fields below it. */
import type { ConfigChangesView, ReloadResultView } from '../../admin-api/views.js';
import { paint, type Surface, type Tone } from './style.js';
import { count, fit, plain } from './values.js';

/** The changes after a reload, and what comes next. */
export function renderReload(result: ReloadResultView, surface: Surface): string[] {
  const head = result.changed
    ? paint(`the configuration is in force: ${changesInWords(result)}`, 'strong', surface)
    : 'nothing has changed';
  return [head, ...renderChanges(result, surface), ...result.notes.map((note) => `  ${plain(note)}`)];
}

/** `2 models, 1 setting`. */
export function changesInWords({ models, settings }: ConfigChangesView): string {
  const applied = settings.filter((setting) => !setting.needsRestart).length;
  const parts = [
    ...(models.length === 0 ? [] : [count(models.length, 'model')]),
    ...(applied === 0 ? [] : [count(applied, 'setting')]),
  ];
  return parts.length === 0 ? 'no change' : `${parts.join(', ')} changed`;
}

interface Line {
  readonly sign: '+' | '-' | '~';
  readonly name: string;
  readonly note: string;
}

const TONES: Readonly<Record<Line['sign'], Tone>> = { '+': 'good', '-': 'bad', '~': 'busy' };

/** Every change, models first. */
export function renderChanges(changes: ConfigChangesView, surface: Surface): string[] {
  const { models, settings } = changes;
  return [
    ...models.flatMap((model) => [
      line(modelLine(model), surface),
      ...model.changes.map((field) => fieldLine('      ', field, surface)),
    ]),
    ...settings.map((setting) => {
      const waits = setting.needsRestart ? paint('  needs a restart of the server', 'busy', surface) : '';
      return `${fieldLine(`  ${paint(signOf(setting), TONES[signOf(setting)], surface)} `, setting, surface)}${waits}`;
    }),
    ...changes.needsRestart
      .filter((path) => !settings.some((setting) => setting.path === path))
      .map((path) => `  ~ ${plain(path)}${paint('  needs a restart of the server', 'busy', surface)}`),
  ];
}

function modelLine({ kind, model, rolls }: ConfigChangesView['models'][number]): Line {
  switch (kind) {
    case 'added':
      return { sign: '+', name: model, note: 'new' };
    case 'removed':
      return { sign: '-', name: model, note: 'its replicas finish their requests and stop' };
    case 'changed':
      return {
        sign: '~',
        name: model,
        note: rolls.length === 0 ? 'no replica is touched' : `replicas of ${rolls.join(', ')} are replaced`,
      };
  }
}

function line({ sign, name, note }: Line, surface: Surface): string {
  return `  ${paint(`${sign} model ${plain(name)}`, TONES[sign], surface)}  ${paint(plain(note), 'dim', surface)}`;
}

interface Field {
  readonly path: string;
  readonly before?: string;
  readonly after?: string;
}

const signOf = ({ before, after }: Field): Line['sign'] =>
  before === undefined ? '+' : after === undefined ? '-' : '~';

/** Columns of one value; both of a change still fit a usual terminal. */
const VALUE_COLUMNS = 60;

function fieldLine(indent: string, field: Field, surface: Surface): string {
  const shown = (text: string | undefined, tone: Tone): string =>
    text === undefined
      ? paint('unset', 'dim', surface)
      : paint(fit(plain(text), VALUE_COLUMNS), tone, surface);
  return `${indent}${plain(field.path)}: ${shown(field.before, 'bad')} → ${shown(field.after, 'good')}`;
}
