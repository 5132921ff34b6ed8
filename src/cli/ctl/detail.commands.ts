/** `ctl status`, `node`, `model`, `replica`, `version`: one thing at a time. */
import type { ListView } from '../../admin-api/views/answers.js';
import type { ModelDetailView, ModelSummaryView } from '../../admin-api/views/models.js';
import type { NodeDetailView, NodeSummaryView } from '../../admin-api/views/nodes.js';
import type { ReplicaDetailView, ReplicaSummaryView } from '../../admin-api/views/replicas.js';
import type { StatusView } from '../../admin-api/views/status.js';
import { OperatorError } from '../../shared/errors.js';
import { SubCommand } from '../nest-commander-lean.js';
import { renderModel, renderNode, renderReplica, renderStatus } from '../render/details.js';
import { buildVersion } from '../../shared/build-info.js';
import type { AdminClient } from './admin-client.js';
import { CtlCommandBase, byIdOrPrefix, segment } from './ctl-base.js';

@SubCommand({ name: 'status', description: 'Show how the whole is doing, and what needs a look.' })
export class CtlStatusCommand extends CtlCommandBase {
  override async run(): Promise<void> {
    await this.show(async () => {
      const status = await this.client.get<StatusView>('status');
      return { data: status, names: ['status'], lines: (surface) => renderStatus(status, surface) };
    });
  }
}

export const nodeIds = async (client: AdminClient): Promise<string[]> =>
  (await client.get<ListView<NodeSummaryView>>('nodes')).items.map(({ id }) => id);

export const modelNames = async (client: AdminClient): Promise<string[]> =>
  (await client.get<ListView<ModelSummaryView>>('models')).items.map(({ name }) => name);

export const replicaIds = async (client: AdminClient): Promise<string[]> =>
  (await client.get<ListView<ReplicaSummaryView>>('replicas')).items.map(({ id }) => id);

export const getNode = (client: AdminClient, given: string): Promise<NodeDetailView> =>
  byIdOrPrefix(
    'node',
    given,
    () => nodeIds(client),
    (id) => client.get<NodeDetailView>(`nodes/${segment(id)}`),
  );

export const getModel = (client: AdminClient, given: string): Promise<ModelDetailView> =>
  byIdOrPrefix(
    'model',
    given,
    () => modelNames(client),
    (name) => client.get<ModelDetailView>(`models/${segment(name)}`),
  );

export const getReplica = (client: AdminClient, given: string): Promise<ReplicaDetailView> =>
  byIdOrPrefix(
    'replica',
    given,
    () => replicaIds(client),
    (id) => client.get<ReplicaDetailView>(`replicas/${segment(id)}`),
  );

@SubCommand({ name: 'node', arguments: '<id>', description: 'Show one machine: state, GPUs, shards.' })
export class CtlNodeCommand extends CtlCommandBase {
  override async run([id = '']: string[]): Promise<void> {
    await this.show(async () => {
      const node = await getNode(this.client, id);
      return { data: node, names: [node.id], lines: (surface) => renderNode(node, surface) };
    });
  }
}

@SubCommand({
  name: 'model',
  arguments: '<name>',
  description: 'Show one model: profiles, replicas, what is missing.',
})
export class CtlModelCommand extends CtlCommandBase {
  override async run([name = '']: string[]): Promise<void> {
    await this.show(async () => {
      const model = await getModel(this.client, name);
      return { data: model, names: [model.name], lines: (surface) => renderModel(model, surface) };
    });
  }
}

@SubCommand({
  name: 'replica',
  arguments: '<id>',
  description: 'Show one replica: shards, failures, end of the log.',
})
export class CtlReplicaCommand extends CtlCommandBase {
  override async run([id = '']: string[]): Promise<void> {
    await this.show(async () => {
      const replica = await getReplica(this.client, id);
      return { data: replica, names: [replica.id], lines: (surface) => renderReplica(replica, surface) };
    });
  }
}

@SubCommand({ name: 'version', description: 'Show the versions of this command, the server and the agents.' })
export class CtlVersionCommand extends CtlCommandBase {
  override async run(): Promise<void> {
    const versions = { ctl: buildVersion(), ...(await this.remoteVersions()) };
    const agents = Object.entries(versions.agents);
    await this.showOnce({
      data: versions,
      names: [versions.ctl],
      lines: () => [
        `ctl     ${versions.ctl}`,
        `server  ${versions.server ?? 'not reachable'}`,
        ...agents.map(
          ([node, version]) =>
            `agent   ${version}  ${node}${version === versions.server ? '' : '  (differs from the server)'}`,
        ),
      ],
    });
  }

  /** The own version is worth telling without a server too. */
  private async remoteVersions(): Promise<{ server?: string; agents: Record<string, string> }> {
    try {
      const { version, mode } = await this.client.get<StatusView>('status');
      // A server that only routes has no agents.
      if (mode === 'router') return { server: version, agents: {} };
      const { items } = await this.client.get<ListView<NodeSummaryView>>('nodes');
      const agents = items.flatMap(({ id, agentVersion }) =>
        agentVersion === undefined ? [] : [[id, agentVersion]],
      );
      return { server: version, agents: Object.fromEntries(agents) as Record<string, string> };
    } catch (error) {
      if (error instanceof OperatorError && error.code === 'unreachable') return { agents: {} };
      throw error;
    }
  }
}
