/** What NVIDIA's error numbers mean for new work on the device. */

export type XidClass =
  /** The application's fault; only many of them say something about the device. */
  | 'application'
  /** Good to know. */
  | 'informational'
  /** Not to be used before it was reset. */
  | 'reset'
  /** Not to be used before the machine was rebooted, or the device replaced. */
  | 'reboot'
  /** Its links are bad. */
  | 'link'
  /** Carries the driver's own word on what is needed. */
  | 'driverSays'
  /** Sources disagree, or the number is not known: no new work until it has been quiet. */
  | 'doubtful';

const CLASSES: readonly (readonly [XidClass, readonly number[]])[] = [
  ['application', [11, 13, 25, 31, 32, 43, 45, 68, 94, 137]],
  ['informational', [63, 92, 156]],
  ['reset', [46, 48, 62, 95, 110, 119, 120, 136, 140, 143, 155, 158]],
  ['reboot', [64, 79, 157]],
  ['link', [74, 144, 145, 146, 147, 148, 149, 150]],
  ['driverSays', [154]],
];

export function xidClass(xid: number): XidClass {
  return CLASSES.find(([, xids]) => xids.includes(xid))?.[0] ?? 'doubtful';
}

/** The recovery named in an Xid 154: `GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`. */
export function recoveryInXid154(text: string): string | undefined {
  return /to 0x[0-9a-f]+ \(([^)]+)\)/i.exec(text)?.[1];
}
