//! The signals that ask this process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// SIGTERM and SIGINT. From its making on they do nothing else, so it is made once, before there is anything to stop.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::system);
        let (terminate, interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt })
    }

    /// The outcome of `what`; `None` when this process is asked to stop before.
    pub(crate) async fn unless_received<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            outcome = what => Some(outcome),
            _ = self.received() => None,
        }
    }

    /// Waits for the next, and says which. Cancel safe.
    pub(crate) async fn received(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Terminate,
            _ = self.interrupt.recv() => Asked::Interrupt,
        }
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Terminate,
    Interrupt,
}
