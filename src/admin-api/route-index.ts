import type { FastifyInstance } from 'fastify';

/** The routes of the admin listener, to tell a wrong method from a wrong path. */
export class RouteIndex {
  private readonly routes: { readonly pattern: RegExp; readonly method: string }[] = [];

  /** Must be called before routes are added. */
  watch(fastify: FastifyInstance): void {
    fastify.addHook('onRoute', ({ method, url }) => {
      // A catch-all would make every path known.
      if (url.includes('*')) return;
      const pattern = new RegExp(`^${url.replace(/[.+]/g, '\\$&').replace(/:[A-Za-z]+/g, '[^/]+')}/?$`);
      for (const one of [method].flat()) this.routes.push({ pattern, method: one });
    });
  }

  /** Methods that the path of this URL takes, HEAD left out: it goes with GET. */
  methodsFor(url: string): readonly string[] {
    const path = url.split('?')[0] ?? '';
    const found = this.routes.filter((route) => route.pattern.test(path)).map((route) => route.method);
    return [...new Set(found)].filter((method) => method !== 'HEAD' && method !== 'OPTIONS').sort();
  }
}
