import type { ListView } from '../../admin-api/views/answers.js';
import type { EventView } from '../../admin-api/views/status.js';
import { OperatorError } from '../../shared/errors.js';
import { didYouMean } from '../../shared/nearest.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { EVENT_COLUMNS } from '../render/list-columns.js';
import { paint, toneOf, type Surface } from '../render/style.js';
import { renderTable } from '../render/table.js';
import { plain } from '../render/values.js';
import { CtlCommandBase, type Answer } from './ctl-base.js';

/** As many as the server keeps: what concerns one thing may lie far back. */
const ALL = 5_000;
/** Past events that a follower sees first, so that it knows where it is. */
const TAIL = 20;
/** Pause before a stream that broke off is asked for again. */
const AGAIN_MS = 1_000;

@SubCommand({ name: 'events', description: 'List what happened, oldest first.' })
export class CtlEventsCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl events -f', 'go on with new ones as they happen'],
    ['llmgw ctl events --about n1', 'what concerns one node, model, replica or GPU'],
  ] as const;

  @Option({ flags: '-f, --follow', description: 'go on with new events until interrupted' })
  parseFollow(): boolean {
    return true;
  }

  @Option({ flags: '--about <id>', description: 'only what concerns this node, model, replica or GPU' })
  parseAbout(value: string): string {
    return value;
  }

  override async run(
    _words: string[],
    { follow, about }: { follow?: boolean; about?: string },
  ): Promise<void> {
    this.refuseWatch();
    // Refused before a server is asked.
    void this.format;
    const { items } = await this.client.get<ListView<EventView>>(
      'events',
      about === undefined ? {} : { limit: ALL },
    );
    const ids = new Set(items.flatMap(({ subject, related }) => [subject, ...related].map(({ id }) => id)));
    const meant = about === undefined ? undefined : idMeant(about, ids);
    if (follow === true) return this.follow(items, meant);
    const events = items.filter((event) => concerns(event, meant));
    const none =
      meant === undefined ? 'no events' : `no events about ${plain(meant)}${didYouMean(meant, ids)}`;
    await this.showOnce({
      data: { items: events },
      names: events.map(({ sequence }) => String(sequence)),
      lines: (surface, wide) =>
        events.length === 0 ? [none] : renderTable(EVENT_COLUMNS, events, surface, { wide }),
    });
  }

  /**
   * The last few of `past`, then what comes after it. One piece for each event: a table cannot know the width of what has not
   * happened yet. A restart of the server is no end.
   */
  private async follow(past: readonly EventView[], about: string | undefined): Promise<void> {
    for (const event of past.filter((one) => concerns(one, about)).slice(-TAIL))
      await this.showNext(nextAnswer(event));
    let after = past.at(-1)?.sequence ?? 0;
    let told = false;
    for (;;) {
      try {
        for await (const data of this.client.follow('events', { follow: true, id: about, after })) {
          const event = JSON.parse(data) as EventView;
          after = event.sequence;
          told = false;
          await this.showNext(nextAnswer(event));
        }
      } catch (error) {
        if (!(error instanceof OperatorError) || error.code !== 'unreachable') throw error;
      }
      if (!told) process.stderr.write(`${this.client.address} sends nothing more; trying again\n`);
      told = true;
      await new Promise<void>((resolve) => this.clock.setTimer(AGAIN_MS, resolve));
    }
  }
}

/** The id that is or begins as given; as given when none or several do. */
function idMeant(given: string, ids: ReadonlySet<string>): string {
  if (ids.has(given)) return given;
  const begun = [...ids].filter((id) => id.startsWith(given));
  return begun.length === 1 ? (begun[0] ?? given) : given;
}

const concerns = ({ subject, related }: EventView, about: string | undefined): boolean =>
  about === undefined || [subject, ...related].some(({ id }) => id === about);

const nextAnswer = (event: EventView): Answer => ({
  data: event,
  names: [String(event.sequence)],
  lines: (surface) => [eventLine(event, surface)],
});

function eventLine({ at, severity, type, subject, actor, reason }: EventView, surface: Surface): string {
  const time = at.slice(11, 19);
  const level = paint(severity.padEnd(7), toneOf(severity), surface);
  const what = `${plain(type)}  ${plain(`${subject.kind}/${subject.id}`)}`;
  return `${time}  ${level}  ${what}  ${plain(reason.message)} (${plain(actor)})`;
}
