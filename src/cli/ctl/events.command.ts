import type { ListView } from '../../admin-api/views/answers.js';
import type { EventView } from '../../admin-api/views/status.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import { EVENT_COLUMNS } from '../render/list-columns.js';
import { paint, toneOf, type Surface } from '../render/style.js';
import { renderTable } from '../render/table.js';
import { plain } from '../render/values.js';
import { CtlCommandBase } from './ctl-base.js';

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

  override async run(_words: string[], options: { follow?: boolean; about?: string }): Promise<void> {
    this.refuseWatch();
    const concerns = ({ subject, related }: EventView): boolean =>
      options.about === undefined || [subject, ...related].some(({ id }) => id === options.about);
    if (options.follow === true) return this.follow(concerns);
    const { items } = await this.client.get<ListView<EventView>>('events');
    const events = items.filter(concerns);
    await this.showOnce({
      data: { items: events },
      names: events.map(({ sequence }) => String(sequence)),
      lines: (surface, wide) =>
        events.length === 0 ? ['no events'] : renderTable(EVENT_COLUMNS, events, surface, { wide }),
    });
  }

  /** One line for each event: a table cannot know the width of what has not happened yet. */
  private async follow(concerns: (event: EventView) => boolean): Promise<void> {
    const { format } = this;
    for await (const data of this.client.follow('events', { follow: true })) {
      const event = JSON.parse(data) as EventView;
      if (!concerns(event)) continue;
      process.stdout.write(
        `${format === 'json' ? JSON.stringify(event) : eventLine(event, this.surface())}\n`,
      );
    }
  }
}

function eventLine({ at, severity, type, subject, reason }: EventView, surface: Surface): string {
  const time = at.slice(11, 19);
  const level = paint(severity.padEnd(7), toneOf(severity), surface);
  return `${time}  ${level}  ${plain(type)}  ${plain(`${subject.kind}/${subject.id}`)}  ${plain(reason.message)}`;
}
