/** A metadata value with the type it has in the file. */
export type GgufValue =
  | { readonly type: 'uint32'; readonly value: number }
  | { readonly type: 'float32'; readonly value: number }
  | { readonly type: 'bool'; readonly value: boolean }
  | { readonly type: 'string'; readonly value: string }
  | { readonly type: 'int32[]'; readonly value: readonly number[] }
  | { readonly type: 'string[]'; readonly value: readonly string[] };

export interface GgufTensor {
  readonly name: string;
  /** Fastest-moving dimension first, as GGUF has it. */
  readonly shape: readonly number[];
  readonly type: 'float32' | 'float16';
  readonly data: Buffer;
}

// From the GGUF specification, version 3.
const VERSION = 3;
const ALIGNMENT = 32;
const VALUE_TYPES = { uint32: 4, int32: 5, float32: 6, bool: 7, string: 8, array: 9 } as const;
const TENSOR_TYPES = { float32: 0, float16: 1 } as const;

/** Lays out a GGUF file: header, metadata, tensor directory, then the tensors, each aligned. */
export function encodeGguf(metadata: ReadonlyMap<string, GgufValue>, tensors: readonly GgufTensor[]): Buffer {
  const directory: Buffer[] = [];
  const blobs: Buffer[] = [];
  let offset = 0;
  for (const tensor of tensors) {
    directory.push(
      text(tensor.name),
      uint32(tensor.shape.length),
      ...tensor.shape.map(uint64),
      uint32(TENSOR_TYPES[tensor.type]),
      uint64(offset),
    );
    blobs.push(tensor.data, padding(tensor.data.length));
    offset += tensor.data.length + padding(tensor.data.length).length;
  }
  const head = Buffer.concat([
    Buffer.from('GGUF'),
    uint32(VERSION),
    uint64(tensors.length),
    uint64(metadata.size),
    ...[...metadata].flatMap(([key, value]) => [text(key), encodeValue(value)]),
    ...directory,
  ]);
  return Buffer.concat([head, padding(head.length), ...blobs]);
}

/** A tensor of 32-bit floats, all the same. */
export function constantTensor(name: string, shape: readonly number[], value: number): GgufTensor {
  const values = new Float32Array(shape.reduce((product, size) => product * size, 1)).fill(value);
  const data = Buffer.alloc(values.length * 4);
  for (const [index, item] of values.entries()) data.writeFloatLE(item, index * 4);
  return { name, shape, type: 'float32', data };
}

/** A tensor of 16-bit floats; `valueAt` gets the place in each dimension, fastest first. What is zero costs nothing. */
export function halfTensor(
  name: string,
  [columns, rows]: readonly [columns: number, rows: number],
  valueAt?: (column: number, row: number) => number,
): GgufTensor {
  const data = Buffer.alloc(columns * rows * 2);
  for (let row = 0; valueAt !== undefined && row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const value = valueAt(column, row);
      if (value !== 0) data.writeUInt16LE(toHalf(value), (row * columns + column) * 2);
    }
  }
  return { name, shape: [columns, rows], type: 'float16', data };
}

const bits = new DataView(new ArrayBuffer(4));

/** IEEE 754 half precision, rounded to nearest; too large becomes infinity, too small zero. */
export function toHalf(value: number): number {
  bits.setFloat32(0, value);
  const single = bits.getUint32(0);
  const sign = (single >>> 16) & 0x8000;
  const exponent = ((single >>> 23) & 0xff) - 127;
  const fraction = single & 0x7f_ffff;
  if (exponent > 15) return sign | 0x7c00;
  if (exponent < -25) return sign;
  // Below 2^-14 a half has no hidden bit any more: the fraction moves right with it made explicit.
  const subnormal = exponent < -14;
  const mantissa = subnormal ? fraction | 0x80_0000 : ((exponent + 15) << 23) | fraction;
  const shift = subnormal ? -exponent - 1 : 13;
  const kept = mantissa >>> shift;
  const rest = mantissa & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  // A carry out of the fraction runs into the exponent, which is just what rounding up to the next power of two means.
  const roundUp = rest > half || (rest === half && (kept & 1) === 1);
  return sign | (kept + (roundUp ? 1 : 0));
}

function encodeValue(value: GgufValue): Buffer {
  switch (value.type) {
    case 'uint32':
      return Buffer.concat([uint32(VALUE_TYPES.uint32), uint32(value.value)]);
    case 'float32':
      return Buffer.concat([uint32(VALUE_TYPES.float32), float32(value.value)]);
    case 'bool':
      return Buffer.concat([uint32(VALUE_TYPES.bool), Buffer.from([value.value ? 1 : 0])]);
    case 'string':
      return Buffer.concat([uint32(VALUE_TYPES.string), text(value.value)]);
    case 'int32[]':
      return array(VALUE_TYPES.int32, value.value.map(int32));
    case 'string[]':
      return array(VALUE_TYPES.string, value.value.map(text));
  }
}

function array(itemType: number, items: readonly Buffer[]): Buffer {
  return Buffer.concat([uint32(VALUE_TYPES.array), uint32(itemType), uint64(items.length), ...items]);
}

function padding(length: number): Buffer {
  return Buffer.alloc((ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT);
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([uint64(bytes.length), bytes]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
}

function uint64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function float32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
}
