//! The signals that ask this process to stop.

use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;
use crate::failure::Failure;

/// SIGTERM and SIGINT, and other signals on request. Once created, this disables their default
/// action. So it is created once, before there is anything to stop.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
    /// A postponed SIGHUP.
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

    /// Adds SIGHUP, for operations that must not end abruptly with their terminal.
    pub(crate) fn with_hangup(mut self) -> Result<Self, Failure> {
        self.hangup = Some(signal(SignalKind::hangup()).map_err(Failure::system)?);
        Ok(self)
    }

    /// Adds SIGQUIT, for commands that forward the signals of a terminal.
    pub(crate) fn with_quit(mut self) -> Result<Self, Failure> {
        self.quit = Some(signal(SignalKind::quit()).map_err(Failure::system)?);
        Ok(self)
    }

    /// Returns the outcome of `work`, or `None` if a signal to stop arrives first.
    pub(crate) async fn unless_received<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            outcome = work => Some(outcome),
            _ = self.received() => None,
        }
    }

    /// Returns the outcome of `work`, or `None` if a signal to stop arrives first. A SIGHUP is
    /// postponed until then.
    pub(crate) async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        let mut is_hangup_pending = false;
        let outcome = loop {
            tokio::select! {
                outcome = &mut work => break Some(outcome),
                signal = self.received() => match signal {
                    Received::Hangup => is_hangup_pending = true,
                    _ => break None,
                }
            }
        };
        self.is_hangup_pending = is_hangup_pending;
        outcome
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn received(&mut self) -> Received {
        if std::mem::take(&mut self.is_hangup_pending) {
            return Received::Hangup;
        }
        tokio::select! {
            _ = self.terminate.recv() => Received::Terminate,
            _ = self.interrupt.recv() => Received::Interrupt,
            () = optional(&mut self.hangup) => Received::Hangup,
            () = optional(&mut self.quit) => Received::Quit,
        }
    }
}

async fn optional(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Terminate,
    Interrupt,
    Hangup,
    Quit,
}

impl Received {
    /// Returns the exit code of a command that the signal ended, by the convention of shells.
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
