//! What listeners add to TCP: TLS and WebSocket.

#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls/disabled.rs"]
pub(crate) mod tls;
#[cfg(feature = "websocket")]
pub(crate) mod websocket;
