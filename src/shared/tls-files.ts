/**
 * Certificates in files, read whole and looked at before anything trusts them: what TLS itself says of a broken file names
 * neither the file nor what is wrong, and of an authority's file that holds nothing it says nothing at all.
 */
import { createPrivateKey, X509Certificate, type KeyObject } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import { errorChain } from './errors.js';

/** Where they are, PEM each; certificate and key go together. */
export interface TlsFiles {
  readonly certFile?: string;
  readonly keyFile?: string;
  readonly caFile?: string;
}

/** What the files held when they were read. */
export interface TlsMaterial {
  readonly cert?: Buffer;
  readonly key?: Buffer;
  readonly ca?: Buffer;
}

/** Material that is replaced when the files are. */
export interface LiveTls {
  readonly material: TlsMaterial;
  /** Calls `taker` with each new material, not with what is there. */
  follow(taker: (material: TlsMaterial) => void): void;
}

export interface TlsProblem {
  /** `broken` = no use of it; `expired` and `early` = whole, but not at this time. */
  readonly kind: 'broken' | 'expired' | 'early';
  /** Names the file. */
  readonly message: string;
}

/** Largest file taken for certificates, bytes: a bundle of every public authority has a quarter of it. */
export const TLS_FILE_MAX_BYTES = 1024 * 1024;

/** Throws for a file that cannot be read, is none, or is too large. */
export function readTls({ certFile, keyFile, caFile }: TlsFiles): TlsMaterial {
  return {
    ...(certFile === undefined ? {} : { cert: readWhole(certFile) }),
    ...(keyFile === undefined ? {} : { key: readWhole(keyFile) }),
    ...(caFile === undefined ? {} : { ca: readWhole(caFile) }),
  };
}

function readWhole(file: string): Buffer {
  const facts = statSync(file);
  // Reading a pipe would wait for its writer, and everything else with it.
  if (!facts.isFile()) throw new Error(`${file} is not a regular file`);
  if (facts.size > TLS_FILE_MAX_BYTES)
    throw new Error(`${file} has ${facts.size} bytes, more than certificates have`);
  return readFileSync(file);
}

/** Whether two readings are the same to the byte. */
export function sameTls(a: TlsMaterial, b: TlsMaterial): boolean {
  const same = (one: Buffer | undefined, other: Buffer | undefined): boolean =>
    one === undefined || other === undefined ? one === other : one.equals(other);
  return same(a.cert, b.cert) && same(a.key, b.key) && same(a.ca, b.ca);
}

/** When the own certificate ends, wall time in ms; undefined without one. */
export function tlsEndsWallMs({ cert }: TlsMaterial): number | undefined {
  return cert === undefined ? undefined : Date.parse(new X509Certificate(cert).validTo);
}

/** Why connections could not be made with this at that time; undefined when they can. */
export function tlsProblem(
  files: TlsFiles,
  material: TlsMaterial,
  nowWallMs: number,
): TlsProblem | undefined {
  try {
    const chain = certificates(files.certFile, material.cert);
    const authorities = certificates(files.caFile, material.ca);
    checkKey(files, material, chain[0]);
    createSecureContext({ ...material });
    return (
      untimely(files.certFile, chain.slice(0, 1), nowWallMs) ?? untimely(files.caFile, authorities, nowWallMs)
    );
  } catch (error) {
    return { kind: 'broken', message: errorChain(error).join(': ') };
  }
}

const BLOCK =
  /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[\s\S]*?-----END (?:X509 |TRUSTED )?CERTIFICATE-----/g;
const BEGIN = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----/g;

function certificates(file: string | undefined, pem: Buffer | undefined): readonly X509Certificate[] {
  if (file === undefined || pem === undefined) return [];
  const text = pem.toString('latin1');
  const blocks = text.match(BLOCK) ?? [];
  // TLS would take what comes before the cut, and clients would miss the rest of the chain.
  if (blocks.length < (text.match(BEGIN) ?? []).length)
    throw new Error(`${file} is cut off within a certificate`);
  if (blocks.length === 0) throw new Error(`${file} holds no certificate`);
  return blocks.map((block) => {
    try {
      return new X509Certificate(block);
    } catch (error) {
      throw new Error(`${file} holds a certificate that cannot be read`, { cause: error });
    }
  });
}

function checkKey(
  { certFile, keyFile }: TlsFiles,
  { key }: TlsMaterial,
  own: X509Certificate | undefined,
): void {
  if (key === undefined || own === undefined) return;
  let read: KeyObject;
  try {
    read = createPrivateKey(key);
  } catch (error) {
    throw new Error(`${keyFile} holds no private key that can be read`, { cause: error });
  }
  if (!own.checkPrivateKey(read))
    throw new Error(`the key in ${keyFile} does not belong to the certificate in ${certFile}`);
}

/** Of several authorities one that holds is enough. */
function untimely(
  file: string | undefined,
  found: readonly X509Certificate[],
  nowWallMs: number,
): TlsProblem | undefined {
  const problems = found.map((one): TlsProblem | undefined => {
    const [fromMs, toMs] = [Date.parse(one.validFrom), Date.parse(one.validTo)];
    if (nowWallMs >= toMs) return { kind: 'expired', message: `${file} ended at ${isoTime(toMs)}` };
    if (nowWallMs < fromMs)
      return { kind: 'early', message: `${file} holds only from ${isoTime(fromMs)} on` };
    return undefined;
  });
  return problems.includes(undefined) ? undefined : problems[0];
}

const isoTime = (wallMs: number): string => new Date(wallMs).toISOString();
