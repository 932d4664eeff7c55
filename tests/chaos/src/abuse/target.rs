//! The address of the store, and connections of honest clients to it.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use statestore_server::rustls::pki_types::ServerName;
use statestore_server::rustls::{ClientConfig, ClientConnection, StreamOwned};

/// A byte stream.
pub(crate) trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// User name and password.
    pub(crate) login: Option<(String, String)>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Target {
    /// Opens a connection whose reads and writes fail after `patience`. Returns it with its socket.
    pub(crate) fn open(&self, patience: Duration) -> io::Result<(Box<dyn Stream>, TcpStream)> {
        let socket = TcpStream::connect_timeout(&self.address, patience)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        let stream = socket.try_clone()?;
        let Some(tls) = &self.tls else { return Ok((Box::new(stream), socket)) };
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let tls = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
        Ok((Box::new(StreamOwned::new(tls, stream)), socket))
    }
}
