/** `ctl nodes`, `gpus`, `models`, `replicas`, `endpoints`: everything of one kind. */
import type { ListView } from '../../admin-api/views/answers.js';
import type { ModelSummaryView } from '../../admin-api/views/models.js';
import type { GpuView, NodeSummaryView } from '../../admin-api/views/nodes.js';
import type { EndpointView, ReplicaSummaryView } from '../../admin-api/views/replicas.js';
import { Option, SubCommand } from '../nest-commander-lean.js';
import {
  ENDPOINT_COLUMNS,
  GPU_COLUMNS,
  MODEL_COLUMNS,
  NODE_COLUMNS,
  REPLICA_COLUMNS,
} from '../render/list-columns.js';
import { renderTable, type Column } from '../render/table.js';
import { usageError } from '../llmgw-command.js';
import type { AdminClient } from './admin-client.js';
import { CtlCommandBase, type Answer } from './ctl-base.js';
import { getNode } from './detail.commands.js';
import { CtlRemoveNodeCommand } from './remove-node.command.js';

/** A list as a table, or one sentence when it is empty. */
export function listAnswer<T>(
  items: readonly T[],
  columns: readonly Column<T>[],
  name: (item: T) => string,
  empty: string,
): Answer {
  return {
    data: { items },
    names: items.map(name),
    lines: (surface, wide) => (items.length === 0 ? [empty] : renderTable(columns, items, surface, { wide })),
  };
}

/** `a=b,c!=d,e`: a label equals, differs, exists. */
export function labelFilter(
  selector: string | undefined,
): (labels: Readonly<Record<string, string>>) => boolean {
  const terms = (selector ?? '').split(',').filter((term) => term.trim() !== '');
  const tests = terms.map((term) => {
    const match = /^\s*([\w./-]+)\s*(?:(!=|==?)\s*([^=!,]*?))?\s*$/.exec(term);
    if (match === null) throw usageError(`--selector: expected key=value, key!=value or key, got '${term}'`);
    const [, key = '', operator, value = ''] = match;
    return (labels: Readonly<Record<string, string>>): boolean => {
      if (operator === undefined) return labels[key] !== undefined;
      return operator === '!=' ? labels[key] !== value : labels[key] === value;
    };
  });
  return (labels) => tests.every((test) => test(labels));
}

/**
 * The node that is or begins as given, looked up once: of `n1` and `n10` the first is meant by `n1`, and a name that no
 * node has is an error and no empty list.
 */
function nodeMeant(client: AdminClient, given: string | undefined): () => Promise<string | undefined> {
  let found: string | undefined;
  return async () => {
    if (given !== undefined) found ??= (await getNode(client, given)).id;
    return found;
  };
}

@SubCommand({ name: 'nodes', description: 'List the machines.', subCommands: [CtlRemoveNodeCommand] })
export class CtlNodesCommand extends CtlCommandBase {
  protected override readonly examples = [
    ['llmgw ctl nodes -o wide', 'with labels and agent versions'],
    ['llmgw ctl nodes -l zone=a --watch', 'those of one zone, again on every change'],
  ] as const;

  @Option({
    flags: '-l, --selector <labels>',
    description: 'only nodes with these labels: key=value,key!=value,key',
  })
  parseSelector(value: string): string {
    return value;
  }

  override async run(_words: string[], options: { selector?: string }): Promise<void> {
    const selected = labelFilter(options.selector);
    await this.show(async () => {
      const { items } = await this.client.get<ListView<NodeSummaryView>>('nodes');
      const nodes = items.filter(({ labels }) => selected(labels));
      return listAnswer(nodes, NODE_COLUMNS, ({ id }) => id, 'no nodes: start `llmgw agent` on a machine');
    });
  }
}

@SubCommand({ name: 'gpus', description: 'List the GPUs of all machines.' })
export class CtlGpusCommand extends CtlCommandBase {
  @Option({ flags: '--node <id>', description: 'only those of one node' })
  parseNode(value: string): string {
    return value;
  }

  override async run(_words: string[], options: { node?: string }): Promise<void> {
    const meant = nodeMeant(this.client, options.node);
    await this.show(async () => {
      const node = await meant();
      const { items } = await this.client.get<ListView<GpuView>>('gpus');
      const gpus = items.filter(({ nodeId }) => node === undefined || nodeId === node);
      return listAnswer(gpus, GPU_COLUMNS, ({ uuid }) => uuid, 'no GPUs');
    });
  }
}

@SubCommand({ name: 'models', description: 'List the models and whether they can be served.' })
export class CtlModelsCommand extends CtlCommandBase {
  override async run(): Promise<void> {
    await this.show(async () => {
      const { items } = await this.client.get<ListView<ModelSummaryView>>('models');
      return listAnswer(items, MODEL_COLUMNS, ({ name }) => name, 'no models');
    });
  }
}

@SubCommand({ name: 'replicas', description: 'List the running copies of models.' })
export class CtlReplicasCommand extends CtlCommandBase {
  @Option({ flags: '--model <name>', description: 'only those of one model' })
  parseModel(value: string): string {
    return value;
  }

  @Option({ flags: '--node <id>', description: 'only those with a shard on one node' })
  parseNode(value: string): string {
    return value;
  }

  override async run(_words: string[], options: { model?: string; node?: string }): Promise<void> {
    const meant = nodeMeant(this.client, options.node);
    await this.show(async () => {
      const node = await meant();
      const { model } = options;
      const { items } = await this.client.get<ListView<ReplicaSummaryView>>('replicas', { model });
      const replicas = items.filter(({ nodes }) => node === undefined || nodes.includes(node));
      return listAnswer(replicas, REPLICA_COLUMNS, ({ id }) => id, 'no replicas');
    });
  }
}

@SubCommand({ name: 'endpoints', description: 'List what the router can send requests to.' })
export class CtlEndpointsCommand extends CtlCommandBase {
  override async run(): Promise<void> {
    await this.show(async () => {
      const { items } = await this.client.get<ListView<EndpointView>>('endpoints');
      return listAnswer(items, ENDPOINT_COLUMNS, ({ id }) => id, 'no endpoints: nothing is ready to serve');
    });
  }
}
