//! Diagnostics: Nagle's algorithm, mosquitto's log, and texts from peers.

pub mod mosquitto;
pub mod nagle;
pub mod text;

/// Keys of certificates that TLS supports here, with rustls and ring, as advice.
pub const SUPPORTED_KEYS: &str =
    "use RSA with 2,048 to 4,096 bits, ECDSA with P-256 or P-384 (not P-521), or Ed25519";
