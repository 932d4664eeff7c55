//! A command in its own process group with the terminal, like a job of a shell.

use std::io::{self, IsTerminal, stdin};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as Masked};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_current_process_group, kill_process_group,
    test_kill_process_group, waitid,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};

use crate::exit::Exit;
use crate::output::notice;

/// Interval of checks whether the processes of a command have ended.
const POLL: Duration = Duration::from_millis(20);

/// A command and the processes it has started, unless they leave its process group.
pub(crate) struct Job {
    child: Child,
    group: Option<Pid>,
    /// Set if this process was in the foreground of a terminal. Then the job is.
    terminal: Option<Terminal>,
    /// The signal from the terminal that ended it.
    typed: Option<Signal>,
}

/// Signals of a terminal.
struct Terminal {
    /// The job may have stopped.
    children: unix::Signal,
    /// This process continues after a stop.
    continued: unix::Signal,
}

impl Job {
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let terminal = match is_in_foreground() {
            false => None,
            // Before the first signal can arrive.
            true => Some(Terminal {
                children: signal(SignalKind::child())?,
                continued: signal(SignalKind::from_raw(Signal::CONT.as_raw()))?,
            }),
        };
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let job = Self { child, group, terminal, typed: None };
        job.take_to_foreground();
        Ok(job)
    }

    /// Waits for the end of the command itself. Cancel safe.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        let status = loop {
            let Some(terminal) = &mut self.terminal else { break self.child.wait().await };
            tokio::select! {
                status = self.child.wait() => break status,
                _ = terminal.children.recv() => self.stop_with_it(),
                _ = terminal.continued.recv() => self.take_to_foreground(),
            }
        };
        if self.leave_foreground() {
            let ended_by = status.as_ref().ok().and_then(ExitStatusExt::signal);
            let typed = [Signal::INT, Signal::QUIT];
            self.typed = typed.into_iter().find(|signal| Some(signal.as_raw()) == ended_by);
        }
        status
    }

    /// Returns the signal from the terminal that ended it. Without the job, the terminal would also
    /// send it to the caller of this command, for example a script.
    pub(crate) const fn typed(&self) -> Option<Signal> {
        self.typed
    }

    /// Sends a signal to all its processes.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Sends SIGTERM to all its processes, and kills those that do not end within the grace period.
    pub(crate) async fn end(&mut self, grace: Duration) -> io::Result<()> {
        let deadline = Instant::now() + grace;
        self.signal(Signal::TERM);
        // A stopped process receives the other signal only then.
        self.signal(Signal::CONT);
        let _ = timeout_at(deadline, self.child.wait()).await;
        while self.is_left() && Instant::now() < deadline {
            sleep(POLL).await;
        }
        if self.is_left() {
            self.signal(Signal::KILL);
        }
        let ended = self.child.wait().await;
        self.leave_foreground();
        ended.map(drop)
    }

    /// Returns whether a process of it exists. Until then its group number is not reused.
    fn is_left(&self) -> bool {
        self.group.is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    /// Gives it the terminal if this process has it, and continues it.
    fn take_to_foreground(&self) {
        let (Some(group), Some(_)) = (self.group, &self.terminal) else { return };
        if is_in_foreground() {
            let _ = tcsetpgrp(stdin(), group);
        }
        // It may have been stopped for reading from the terminal before.
        self.signal(Signal::CONT);
    }

    /// Takes the terminal back. Returns whether the job had it.
    fn leave_foreground(&self) -> bool {
        let is_there = |group| tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == group);
        if self.terminal.is_none() || !self.group.is_some_and(is_there) {
            return false;
        }
        // Without it, a process in the background would be stopped.
        let mut stops = SigSet::empty();
        stops.add(Masked::SIGTTOU);
        let _ = stops.thread_block();
        let _ = tcsetpgrp(stdin(), getpgrp());
        let _ = stops.thread_unblock();
        true
    }

    /// If the terminal has stopped it, stops this process too, so that the shell notices.
    fn stop_with_it(&self) {
        let Some(group) = self.group else { return };
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        if matches!(waitid(WaitId::Pid(group), options), Ok(Some(status)) if status.stopped()) {
            self.leave_foreground();
            let _ = kill_current_process_group(Signal::TSTP);
        }
    }
}

/// Reports that a command could not be started, and returns its exit code as of a shell.
pub(crate) fn not_started(program: &str, error: &io::Error) -> ExitCode {
    notice(format_args!(
        "{program}: {error}; check its name, and that it is executable and in PATH"
    ));
    match error.kind() {
        io::ErrorKind::NotFound => Exit::CommandNotFound,
        _ => Exit::CommandNotExecutable,
    }
    .into()
}

/// The exit code of a command, or 128 plus the number of the signal that ended it, as in a shell.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// Returns whether standard input is a terminal and this process is in its foreground.
fn is_in_foreground() -> bool {
    stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}
