//! A TCP proxy that can interrupt connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Size of the buffer for each direction of a connection.
const BUFFER: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// Connections are closed, and new ones are closed immediately.
    Closed,
    /// Nothing is forwarded or closed. Bytes are delivered once the proxy opens again, as in TCP.
    Silent,
}

/// Dropping the proxy ends it.
pub(crate) struct Proxy {
    port: u16,
    mode: watch::Sender<Mode>,
}

impl Proxy {
    /// Starts a proxy to this port of this machine.
    pub(crate) async fn start(target: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (mode, changes) = watch::channel(Mode::Open);
        tokio::spawn(accept(listener, ([127, 0, 0, 1], target).into(), changes));
        Ok(Self { port, mode })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn switch(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, mode: watch::Receiver<Mode>) {
    loop {
        let mut closed = mode.clone();
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // The handle was dropped.
            _ = closed.wait_for(|_| false) => return,
        };
        let Ok((client, _)) = accepted else { continue };
        tokio::spawn(connect(client, target, mode.clone()));
    }
}

async fn connect(client: TcpStream, target: SocketAddr, mut mode: watch::Receiver<Mode>) {
    match mode.wait_for(|mode| *mode != Mode::Silent).await.map(|mode| *mode) {
        Ok(Mode::Open) => {}
        _ => return,
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    tokio::select! {
        () = pass(from_client, to_server, mode.clone()) => {}
        () = pass(from_server, to_client, mode) => {}
    }
}

/// Forwards bytes until one side or the proxy is closed.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut mode: watch::Receiver<Mode>) {
    let mut buffer = vec![0; BUFFER];
    loop {
        match mode.wait_for(|mode| *mode != Mode::Silent).await.map(|mode| *mode) {
            Ok(Mode::Open) => {}
            _ => return,
        }
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            changed = mode.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let Ok(length @ 1..) = read else { return };
        let Some(bytes) = buffer.get(..length) else { return };
        // Bytes that were already read are delayed as well.
        match mode.wait_for(|mode| *mode != Mode::Silent).await.map(|mode| *mode) {
            Ok(Mode::Open) => {}
            _ => return,
        }
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
}
