import { describe, expect, it } from 'vitest';
import { kubectlEquivalent } from './kubectl-words.js';

describe('what a kubectl user types', () => {
  it.each([
    ['get nodes', 'nodes'],
    ['get nodes -o wide', 'nodes'],
    ['get node gpu-1', 'node gpu-1'],
    ['get node/gpu-1', 'node gpu-1'],
    ['get pods -w', 'replicas'],
    ['get deployments', 'models'],
    ['get svc', 'endpoints'],
    ['get events', 'events'],
    ['describe pod qwen-x7k2p', 'replica qwen-x7k2p'],
    ['describe model qwen', 'model qwen'],
    ['delete node gpu-1', 'nodes remove gpu-1'],
    ['delete pod qwen-x7k2p', 'restart qwen-x7k2p'],
    ['delete key', 'keys revoke KEY'],
    ['rollout restart deployment/qwen', 'restart qwen'],
    ['rollout status qwen', 'replicas --model qwen --watch'],
    ['cluster-info', 'status'],
  ])('%s is here: %s', (typed, here) => {
    expect(kubectlEquivalent(typed.split(' '))).toBe(`llmgw ctl ${here}`);
  });

  it.each(['get', 'get ingress', 'delete deployment qwen', 'exec pod', 'rollout undo x', 'nods'])(
    '%s has nothing like it',
    (typed) => {
      expect(kubectlEquivalent(typed.split(' '))).toBeUndefined();
    },
  );

  it('apply is a file that is looked at first', () => {
    expect(kubectlEquivalent(['apply', '-f', 'x.yaml'])).toMatch(/^llmgw ctl plan -f FILE .* config reload$/);
  });
});
