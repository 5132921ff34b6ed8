/** What stands in at most one roster at a time. */
export interface Enlisted {
  /** Where in the roster it stands, kept by the roster; -1 while it stands in none. */
  rosterPlace: number;
}

/**
 * Everything that is running of one kind, in no order, for members that come and go with every request.
 *
 * A `Set` would do the same and cost a quarter of the CPU under load: as it fills with holes V8 gives it a new table, and the old
 * one keeps a reference to the new one for iterators that may still be around. Once one such table has grown old, every later one
 * hangs on it, with all that was ever entered there, and the collector of young garbage carries it along until the next full
 * collection.
 */
export class Roster<T extends Enlisted> {
  private readonly members: T[] = [];

  get size(): number {
    return this.members.length;
  }

  /** @throws RangeError when `member` stands in a roster already */
  add(member: T): void {
    if (member.rosterPlace >= 0) throw new RangeError('the member stands in a roster already');
    member.rosterPlace = this.members.push(member) - 1;
  }

  /** False when `member` stands in none. */
  delete(member: T): boolean {
    const place = member.rosterPlace;
    if (this.members[place] !== member) return false;
    const last = this.members.pop() as T;
    if (last !== member) {
      this.members[place] = last;
      last.rosterPlace = place;
    }
    member.rosterPlace = -1;
    return true;
  }

  /** Those in it now; who leaves meanwhile is left out, who comes meanwhile too. */
  *[Symbol.iterator](): Generator<T> {
    for (const member of this.members.slice()) if (this.members[member.rosterPlace] === member) yield member;
  }
}
