//! The byte stream below MQTT.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use statestore_tokio::{Address, LinkError, LinkErrorKind as Kind, Options, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::proxy::open_within;

/// An open byte stream.
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    #[cfg(feature = "websocket")]
    WebSocket(Box<crate::websocket::WebSocket<Self>>),
}

/// TLS settings of a link.
#[cfg(feature = "tls")]
#[derive(Default)]
pub(crate) struct TlsSettings {
    /// Replaces the configuration that [`Options::tls`](statestore_tokio::Options::tls) describes.
    pub(crate) config: Option<std::sync::Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Stream {
    /// Opens a stream to the address.
    pub(crate) async fn open(
        options: &Options,
        address: &Address,
        #[cfg(feature = "tls")] tls: &TlsSettings,
    ) -> Result<Self, LinkError> {
        check_features(options)?;
        if let Some(path) = unix_path(address) {
            #[cfg(feature = "tls")]
            if tls.is_set(options) {
                return Err(unsupported("TLS over a Unix socket"));
            }
            if options.transport != Transport::Tcp {
                return Err(unsupported("WebSocket over a Unix socket"));
            }
            if options.proxy.is_some() {
                return Err(unsupported("a proxy for a Unix socket"));
            }
            return Self::unix(path).await;
        }
        let stream = open_within(address, options.proxy.as_ref(), options.connect_timeout).await?;
        #[cfg(feature = "tls")]
        let stream = tls.encrypt(stream, options, address).await?;
        #[cfg(not(feature = "tls"))]
        let stream = Self::Tcp(stream);
        match &options.transport {
            Transport::Tcp => Ok(stream),
            Transport::WebSocket { path } => stream.upgrade(address, path).await,
            _ => Err(unsupported("this transport")),
        }
    }

    #[cfg(unix)]
    async fn unix(path: &str) -> Result<Self, LinkError> {
        let stream = UnixStream::connect(path).await;
        stream.map(Self::Unix).map_err(|error| LinkError::io(Kind::Unreachable, error))
    }

    #[cfg(not(unix))]
    async fn unix(_: &str) -> Result<Self, LinkError> {
        Err(unsupported("Unix sockets on this platform"))
    }

    #[cfg(feature = "websocket")]
    async fn upgrade(self, address: &Address, path: &str) -> Result<Self, LinkError> {
        let socket = crate::websocket::WebSocket::open(self, address, path).await?;
        Ok(Self::WebSocket(Box::new(socket)))
    }

    #[cfg(not(feature = "websocket"))]
    async fn upgrade(self, _: &Address, _: &str) -> Result<Self, LinkError> {
        Err(unsupported(NO_WEBSOCKET))
    }
}

#[cfg(not(feature = "websocket"))]
const NO_WEBSOCKET: &str = "WebSocket without the feature `websocket` of statestore-client";

/// Fails if the options need a feature that this build lacks: a permanent error wherever the broker
/// is.
pub(crate) fn check_features(options: &Options) -> Result<(), LinkError> {
    #[cfg(not(feature = "tls"))]
    if options.tls.is_some() {
        return Err(unsupported("TLS without the feature `tls` of statestore-client"));
    }
    #[cfg(not(feature = "websocket"))]
    if options.transport != Transport::Tcp {
        return Err(unsupported(NO_WEBSOCKET));
    }
    let _ = options;
    Ok(())
}

#[cfg(feature = "tls")]
impl TlsSettings {
    /// Returns whether the connection must be encrypted.
    const fn is_set(&self, options: &Options) -> bool {
        self.config.is_some() || options.tls.is_some()
    }

    async fn encrypt(
        &self,
        stream: TcpStream,
        options: &Options,
        address: &Address,
    ) -> Result<Stream, LinkError> {
        use tokio_rustls::rustls::pki_types::ServerName;

        let config = match (&self.config, &options.tls) {
            (Some(config), _) => std::sync::Arc::clone(config),
            (None, Some(tls)) => load_config(tls.clone()).await?,
            (None, None) => return Ok(Stream::Tcp(stream)),
        };
        let host = address.bare_host().to_owned();
        let name = ServerName::try_from(host).map_err(|error| {
            let text = format!("the host is not a valid name for TLS: {error}");
            LinkError::new(Kind::Tls, text).permanent().address_specific(None)
        })?;
        let connected = tokio_rustls::TlsConnector::from(config).connect(name, stream).await;
        let stream = connected.map_err(|error| LinkError::io(Kind::Tls, error))?;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// Reads the files of TLS. On another thread, since decrypting a key may take a second.
#[cfg(feature = "tls")]
async fn load_config(
    tls: statestore_tokio::Tls,
) -> Result<std::sync::Arc<tokio_rustls::rustls::ClientConfig>, LinkError> {
    let loaded = tokio::task::spawn_blocking(move || statestore_tokio::tls_config(&tls)).await;
    let loaded = loaded.map_err(|error| LinkError::from_source(Kind::Other, error))?;
    loaded.map_err(LinkError::tls)
}

/// The path of a Unix socket, which an address contains instead of a host.
fn unix_path(address: &Address) -> Option<&str> {
    address.host.starts_with('/').then_some(&*address.host)
}

fn unsupported(feature: &str) -> LinkError {
    LinkError::new(Kind::Unsupported, format_args!("not supported: {feature}"))
}

/// Calls the same method of the stream inside.
macro_rules! inner {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Tcp(stream) => {
                let $inner = Pin::new(stream);
                $call
            }
            #[cfg(unix)]
            Stream::Unix(stream) => {
                let $inner = Pin::new(stream);
                $call
            }
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => {
                let $inner = Pin::new(stream.as_mut());
                $call
            }
            #[cfg(feature = "websocket")]
            Stream::WebSocket(stream) => {
                let $inner = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        inner!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inner!(self, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => stream.poll_shutdown(cx))
    }
}
