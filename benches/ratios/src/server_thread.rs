//! Servers in threads of this process, for the clients that measure them.

use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::bare::Failure;

/// A server in a thread with its own runtime. Dropping it stops the server and waits for its end.
#[derive(Debug)]
pub struct ServerThread {
    /// Port on 127.0.0.1 that the server listens on.
    pub port: u16,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ServerThread {
    /// Starts a server. It sends its port, and ends when the receiver is closed.
    ///
    /// # Errors
    /// If the server ends before it sends the port.
    pub fn spawn<F>(server: F) -> Result<Self, Failure>
    where
        F: AsyncFnOnce(oneshot::Sender<u16>, oneshot::Receiver<()>) -> Result<(), Failure>
            + Send
            + 'static,
    {
        let ((sender, port), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let thread = thread::spawn(move || {
            let run = |runtime: Runtime| runtime.block_on(server(sender, ended));
            let done = runtime().map_err(Into::into).and_then(run);
            if let Err(error) = done {
                eprintln!("server: {error}");
            }
        });
        Ok(Self { port: port.blocking_recv()?, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.end = None;
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Creates a runtime with one thread.
///
/// # Errors
/// If the system has no resources for it.
pub fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
