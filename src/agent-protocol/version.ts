/** Version of the agent protocol this program speaks. */
export const PROTOCOL_VERSION = 1;
/** Oldest version of the other side this program works with. */
export const MIN_PROTOCOL_VERSION = 1;

/** The versions one side speaks. */
export interface VersionRange {
  readonly version: number;
  readonly min: number;
}

export const OUR_VERSIONS: VersionRange = { version: PROTOCOL_VERSION, min: MIN_PROTOCOL_VERSION };

export type Negotiation =
  { readonly ok: true; readonly version: number } | { readonly ok: false; readonly message: string };

/** Highest version both sides speak, or a sentence that names both ranges and says which side to upgrade. */
export function negotiateVersion(server: VersionRange, agent: VersionRange): Negotiation {
  if (agent.version < 1) {
    return {
      ok: false,
      message: `the agent's hello names no protocol version; the server speaks ${range(server)}`,
    };
  }
  const version = Math.min(server.version, agent.version);
  // An agent that names no minimum speaks just its own version.
  const agentMin = agent.min < 1 ? agent.version : agent.min;
  if (version >= server.min && version >= agentMin) return { ok: true, version };
  const older = agent.version < server.version ? 'the agent' : 'the server';
  return {
    ok: false,
    message: `the agent speaks protocol ${range({ ...agent, min: agentMin })}, the server ${range(server)}; upgrade ${older}`,
  };
}

function range(versions: VersionRange): string {
  return versions.min === versions.version ? `${versions.version}` : `${versions.min} to ${versions.version}`;
}
