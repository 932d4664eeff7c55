//! A TCP proxy in front of etcd that can stall, lose replies and close connections.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// Connections stay open, and no bytes pass in either direction.
    Stall,
    /// Requests pass, and replies are discarded.
    DropReplies,
    /// All connections are closed.
    Close,
}

pub(crate) struct Proxy {
    port: u16,
    mode: Arc<watch::Sender<Mode>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy for a local port.
    pub(crate) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mode = Arc::new(watch::Sender::new(Mode::Open));
        let task_mode = Arc::clone(&mode);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, target, task_mode.subscribe()));
            }
        });
        Self { port, mode, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut client: TcpStream, target: u16, mut mode: watch::Receiver<Mode>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let (mut requests, mut replies) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let now = *mode.borrow_and_update();
        tokio::select! {
            biased;
            changed = mode.changed() => if changed.is_err() { return },
            () = std::future::ready(()), if now == Mode::Close => return,
            read = client.read(&mut requests), if now != Mode::Stall => match read {
                Ok(0) | Err(_) => return,
                Ok(len) => if server.write_all(&requests[..len]).await.is_err() { return },
            },
            read = server.read(&mut replies), if now != Mode::Stall => match read {
                Ok(0) | Err(_) => return,
                Ok(_) if now == Mode::DropReplies => {}
                Ok(len) => if client.write_all(&replies[..len]).await.is_err() { return },
            },
        }
    }
}
