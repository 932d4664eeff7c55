//! The signals that ask this process to stop.

use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;
use crate::failure::Failure;

/// SIGTERM and SIGINT, and others where that is asked for. From its making on they do nothing else, so it is made once,
/// before there is anything to stop.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
    /// A SIGHUP that was put off.
    is_hangup_pending: bool,
    quit: Option<Signal>,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::system);
        let (terminate, interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup: None, is_hangup_pending: false, quit: None })
    }

    /// And SIGHUP, for what must not just end when its terminal does.
    pub(crate) fn with_hangup(mut self) -> Result<Self, Failure> {
        self.hangup = Some(signal(SignalKind::hangup()).map_err(Failure::system)?);
        Ok(self)
    }

    /// And SIGQUIT, for what passes on what a terminal tells.
    pub(crate) fn with_quit(mut self) -> Result<Self, Failure> {
        self.quit = Some(signal(SignalKind::quit()).map_err(Failure::system)?);
        Ok(self)
    }

    /// The outcome of `what`; `None` when this process is asked to stop before.
    pub(crate) async fn unless_received<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            outcome = what => Some(outcome),
            _ = self.received() => None,
        }
    }

    /// The outcome of `what`; `None` when this process is asked to stop before. A SIGHUP until then
    /// is received after that.
    pub(crate) async fn unless_stopped<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(what);
        let mut is_hangup_pending = false;
        let outcome = loop {
            tokio::select! {
                outcome = &mut what => break Some(outcome),
                asked = self.received() => match asked {
                    Asked::Hangup => is_hangup_pending = true,
                    _ => break None,
                }
            }
        };
        self.is_hangup_pending = is_hangup_pending;
        outcome
    }

    /// Waits for the next, and says which. Cancel safe.
    pub(crate) async fn received(&mut self) -> Asked {
        if std::mem::take(&mut self.is_hangup_pending) {
            return Asked::Hangup;
        }
        tokio::select! {
            _ = self.terminate.recv() => Asked::Terminate,
            _ = self.interrupt.recv() => Asked::Interrupt,
            () = optional(&mut self.hangup) => Asked::Hangup,
            () = optional(&mut self.quit) => Asked::Quit,
        }
    }
}

async fn optional(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Terminate,
    Interrupt,
    Hangup,
    Quit,
}

impl Asked {
    /// The exit code of a command that was stopped so, as a shell tells of it.
    pub(crate) fn code(self) -> ExitCode {
        match self {
            Self::Interrupt => Exit::Interrupt,
            Self::Terminate => Exit::Terminate,
            Self::Hangup => Exit::Hangup,
            Self::Quit => Exit::Quit,
        }
        .into()
    }
}
