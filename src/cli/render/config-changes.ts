/** What a configuration changes, as a person reads it: one sign per thing, its fields below it. */
import type {
  ConfigChangesView,
  ConfigPlanView,
  ConfigStepView,
  ReloadResultView,
} from '../../admin-api/views/configuration.js';
import { paint, type Surface, type Tone } from './style.js';
import { renderTable, type Column } from './table.js';
import { count, fit, plain, span } from './values.js';

/** The changes after a reload, and what comes next. */
export function renderReload(result: ReloadResultView, surface: Surface): string[] {
  const head = result.changed
    ? paint(`the configuration is in force: ${changesInWords(result)}`, 'strong', surface)
    : 'nothing has changed';
  return [head, ...renderChanges(result, surface), ...result.notes.map((note) => `  ${plain(note)}`)];
}

const STEP_TONES: Readonly<Record<ConfigStepView['kind'], Tone>> = {
  starts: 'busy',
  serves: 'good',
  leaves: 'busy',
  stopped: 'dim',
};

const STEP_COLUMNS: readonly Column<ConfigStepView>[] = [
  { title: 'WHEN', cell: ({ atMs }) => (atMs < 1_000 ? 'at once' : `+${span(atMs)}`), right: true },
  { title: 'REPLICA', cell: ({ replica }) => replica },
  { title: 'WHAT', cell: ({ kind }) => kind, tone: ({ kind }) => STEP_TONES[kind] },
  { title: 'ON', cell: ({ nodes }) => nodes.join('+') },
  { title: 'WHY', cell: (step) => stepReason(step), shrinks: true },
];

/** What a copy starts for is told where it starts; where it leaves, what it still has to finish. */
function stepReason({ kind, reason, replaces, inflight = 0 }: ConfigStepView): string {
  switch (kind) {
    case 'starts':
      return replaces === undefined ? reason.message : `in place of ${replaces}: ${reason.message}`;
    case 'serves':
      return '';
    case 'leaves':
      return inflight === 0
        ? reason.message
        : `after ${count(inflight, 'request')} in flight: ${reason.message}`;
    case 'stopped':
      return '';
  }
}

/** What a configuration would change, then what would happen because of it, then what would not. */
export function renderPlan(plan: ConfigPlanView, surface: Surface): string[] {
  if (!plan.changed) return plan.notes.map((note) => plain(note));
  const started = plan.steps.filter(({ kind }) => kind === 'starts').length;
  const ended = plan.steps.filter(({ kind }) => kind === 'leaves').length;
  const moved = plan.steps.length === 0 ? 'no replica is touched' : `${started} to start, ${ended} to stop`;
  return [
    paint(`${changesInWords(plan).replace(/ changed$/, ' to change')}; ${moved}`, 'strong', surface),
    ...renderChanges(plan, surface),
    ...renderSteps(plan, surface),
    ...renderService(plan, surface),
    ...plan.notes.map((note) => plain(note)),
  ];
}

function renderSteps(plan: ConfigPlanView, surface: Surface): string[] {
  const { steps, expectedMs, unmeasured, cut } = plan;
  if (steps.length === 0) return [];
  const guess = unmeasured.length === 0 ? '' : ` (never started here, taken as 1m: ${unmeasured.join(', ')})`;
  return [
    '',
    paint(`expected to take ${span(expectedMs)}${guess}`, 'strong', surface),
    ...renderTable(STEP_COLUMNS, steps, surface, { indent: '  ' }),
    ...(cut ? ['  ... and more'] : []),
    '',
  ];
}

function renderService({ service, notDone }: ConfigPlanView, surface: Surface): string[] {
  const served = service
    .filter(({ now, fewest }) => fewest < now)
    .map(({ model, now, fewest, gapMs }) => {
      const gap = gapMs > 0 ? `, for ${span(gapMs)} nobody` : '';
      return paint(`  ${plain(model)}: ${now} serving now, at times ${fewest}${gap}`, 'bad', surface);
    });
  const left = notDone.map(({ subject, reason }) => `  ${plain(subject)}: ${plain(reason.message)}`);
  return [...served, ...(left.length === 0 ? [] : [paint('not done:', 'bad', surface), ...left])];
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
