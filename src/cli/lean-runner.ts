/** placeholder */
export async function runCtl(argv: readonly string[]): Promise<void> {
  throw new Error(`not here yet: ${argv.join(' ')}`);
}
