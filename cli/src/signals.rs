//! The signals that ask this process to stop.

use std::future::poll_fn;
use std::process::ExitCode;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::failure::Failure;

/// Signals that would end this process and leave its command behind.
const FORWARDED: [Signal; 8] = [
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::XCPU,
    Signal::XFSZ,
];

/// SIGTERM and SIGINT, and other signals on request. Once created, this disables their default
/// action. So it is created once, before there is anything to stop.
pub(crate) struct Signals {
    all: Vec<(Signal, unix::Signal)>,
    /// A postponed SIGHUP.
    is_hangup_pending: bool,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let none = Self { all: Vec::new(), is_hangup_pending: false };
        none.with(&[Signal::TERM, Signal::INT])
    }

    /// Adds SIGHUP, for operations that must not end abruptly with their terminal.
    pub(crate) fn with_hangup(self) -> Result<Self, Failure> {
        self.with(&[Signal::HUP])
    }

    /// Adds SIGHUP and the others that a command with its own process group must receive from this
    /// process.
    pub(crate) fn for_job() -> Result<Self, Failure> {
        Self::new()?.with_hangup()?.with(&FORWARDED)
    }

    fn with(mut self, signals: &[Signal]) -> Result<Self, Failure> {
        for each in signals {
            let kind = SignalKind::from_raw(each.as_raw());
            self.all.push((*each, signal(kind).map_err(Failure::system)?));
        }
        Ok(self)
    }

    /// Returns the outcome of `work`, or the signal to stop that arrives first.
    pub(crate) async fn or_received<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, Signal> {
        tokio::select! {
            outcome = work => Ok(outcome),
            signal = self.received() => Err(signal),
        }
    }

    /// Returns the outcome of `work`, or `None` if a signal to stop arrives first.
    pub(crate) async fn unless_received<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        self.or_received(work).await.ok()
    }

    /// Returns the outcome of `work`, or `None` if a signal to stop arrives first. A SIGHUP is
    /// postponed until then.
    pub(crate) async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        let mut is_hangup_pending = false;
        let outcome = loop {
            match self.or_received(&mut work).await {
                Err(Signal::HUP) => is_hangup_pending = true,
                outcome => break outcome.ok(),
            }
        };
        self.is_hangup_pending = is_hangup_pending;
        outcome
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn received(&mut self) -> Signal {
        if std::mem::take(&mut self.is_hangup_pending) {
            return Signal::HUP;
        }
        poll_fn(|context| {
            let received = self.all.iter_mut().find_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            received.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Returns the exit code of a command that a signal ended, by the convention of shells.
pub(crate) fn exit_code(signal: Signal) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX))
}
