/** Tokens of the agent's outermost dependencies: time and chance come from outside, so that tests can hold them. */
export const AGENT_CLOCK = Symbol('AgentClock');
export const AGENT_RANDOM = Symbol('AgentRandom');
export const AGENT_TIMINGS = Symbol('AgentTimings');
