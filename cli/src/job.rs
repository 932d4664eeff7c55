//! A command in a process group of its own, which has the terminal where there is one: what a shell does for a job.

use std::io::{self, IsTerminal, stdin};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
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

/// How often to look whether what a command has left behind is gone.
const LOOK: Duration = Duration::from_millis(20);

/// A command and whatever it has started, as far as that stays in its process group.
pub(crate) struct Job {
    child: Child,
    group: Option<Pid>,
    /// Where this command was in the foreground of a terminal, which the job then is.
    terminal: Option<Terminal>,
    /// What ended it while it was there.
    typed: Option<Signal>,
}

/// What a terminal tells by signals.
struct Terminal {
    /// The job has stopped, perhaps.
    children: unix::Signal,
    /// This process goes on after a stop.
    continued: unix::Signal,
}

impl Job {
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let terminal = match is_in_foreground() {
            false => None,
            // Before there is anything to be told of.
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

    /// The signal by which somebody at the terminal has ended it. What waits for this command, as a script does, is to
    /// hear of it too, and would have if the job had not had the terminal.
    pub(crate) const fn typed(&self) -> Option<Signal> {
        self.typed
    }

    /// Sends all of it a signal.
    pub(crate) fn tell(&self, signal: Signal) {
        if let Some(group) = self.group {
            // One that has just ended needs no telling.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Asks all of it to end, and ends what does not within the grace.
    pub(crate) async fn end(&mut self, grace: Duration) -> io::Result<()> {
        let deadline = Instant::now() + grace;
        self.tell(Signal::TERM);
        // What has stopped hears nothing before.
        self.tell(Signal::CONT);
        let _ = timeout_at(deadline, self.child.wait()).await;
        while self.is_left() && Instant::now() < deadline {
            sleep(LOOK).await;
        }
        if self.is_left() {
            self.tell(Signal::KILL);
        }
        let ended = self.child.wait().await;
        self.leave_foreground();
        ended.map(drop)
    }

    /// Whether there is anything of it. Its number is nobody else's as long as there is.
    fn is_left(&self) -> bool {
        self.group.is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    /// Gives it the terminal, if this command has that, and has it go on.
    fn take_to_foreground(&self) {
        let (Some(group), Some(_)) = (self.group, &self.terminal) else { return };
        if is_in_foreground() {
            let _ = tcsetpgrp(stdin(), group);
        }
        // Before it had the terminal it may have been stopped for reading from it.
        self.tell(Signal::CONT);
    }

    /// Takes the terminal back, and says whether there was anything to take.
    fn leave_foreground(&self) -> bool {
        let is_there = |group| tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == group);
        if self.terminal.is_none() || !self.group.is_some_and(is_there) {
            return false;
        }
        // Or this process would be stopped for doing so from the background.
        let mut stops = SigSet::empty();
        stops.add(Masked::SIGTTOU);
        let _ = stops.thread_block();
        let _ = tcsetpgrp(stdin(), getpgrp());
        let _ = stops.thread_unblock();
        true
    }

    /// When the terminal has stopped it, stops this process as well, so that the shell hears of it.
    fn stop_with_it(&self) {
        let Some(group) = self.group else { return };
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        if matches!(waitid(WaitId::Pid(group), options), Ok(Some(status)) if status.stopped()) {
            self.leave_foreground();
            let _ = kill_current_process_group(Signal::TSTP);
        }
    }
}

/// Whether standard input is a terminal and this process is in its foreground.
fn is_in_foreground() -> bool {
    stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}
