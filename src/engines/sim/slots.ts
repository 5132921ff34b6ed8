/** What waits for a slot. */
export interface SlotUser {
  /** Called once when a slot is given. */
  onSlot(): void;
}

/** A fixed number of slots and a first-in first-out queue before them. */
export class Slots {
  private readonly waitingUsers = new Set<SlotUser>();
  private readonly runningUsers = new Set<SlotUser>();

  constructor(
    readonly count: number,
    private readonly maxQueue: number,
  ) {}

  get running(): number {
    return this.runningUsers.size;
  }

  get waiting(): number {
    return this.waitingUsers.size;
  }

  /** True when the next user would neither run nor fit into the queue. */
  get full(): boolean {
    return this.running >= this.count && this.waiting >= this.maxQueue;
  }

  /** Gives a slot now or puts the user in the queue. */
  take(user: SlotUser): void {
    if (this.running < this.count) this.run(user);
    else this.waitingUsers.add(user);
  }

  /** Ends a user's stay, in a slot or in the queue; the next in the queue moves up. Harmless when it has left already. */
  leave(user: SlotUser): void {
    if (this.waitingUsers.delete(user)) return;
    if (!this.runningUsers.delete(user)) return;
    const [next] = this.waitingUsers;
    if (next === undefined) return;
    this.waitingUsers.delete(next);
    this.run(next);
  }

  private run(user: SlotUser): void {
    this.runningUsers.add(user);
    user.onSlot();
  }
}
