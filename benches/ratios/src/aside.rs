//! Servers beside the client that measures them.

use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::bare::Failure;

/// A thread with a runtime of its own, as a process would be. Dropping it tells it to end, and waits for that.
#[derive(Debug)]
pub struct Aside {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Aside {
    /// Runs this until it is told to end. It tells its port.
    ///
    /// # Errors
    /// When it ends before that.
    pub fn spawn<F>(what: F) -> Result<Self, Failure>
    where
        F: AsyncFnOnce(oneshot::Sender<u16>, oneshot::Receiver<()>) -> Result<(), Failure>
            + Send
            + 'static,
    {
        let ((tell, told), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let thread = thread::spawn(move || {
            let done = runtime().map_err(Into::into).and_then(|it| it.block_on(what(tell, ended)));
            if let Err(error) = done {
                eprintln!("beside: {error}");
            }
        });
        Ok(Self { port: told.blocking_recv()?, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.end = None;
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// A runtime of one thread.
///
/// # Errors
/// Those of the system.
pub fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
