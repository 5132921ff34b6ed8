/** Tokens under which what knows credentials is injected. */
export const KEY_RING = Symbol('KeyRing');
export const TOKEN_RING = Symbol('TokenRing');
export const ISSUER = Symbol('CredentialIssuer');
