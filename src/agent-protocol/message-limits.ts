/** Most entries taken from one report; a machine with more is a broken or hostile agent. */
export const GPUS_MAX = 256;
export const SHARDS_MAX = 1_024;
export const ENGINES_MAX = 64;
export const PORTS_MAX = 8_192;
export const WEIGHTS_MAX = 4_096;
export const CONDITIONS_MAX = 64;
export const FOREIGN_MAX = 256;
/** Longest identifier (node id, shard id, UUID, label key); longer ones would only serve to fill logs and labels. */
export const ID_LIMIT_CHARS = 253;
/** Control characters have no place in an identifier: it is printed on terminals and written into logs and metrics. */
// oxlint-disable-next-line no-control-regex -- refusing exactly these is the point
export const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;
