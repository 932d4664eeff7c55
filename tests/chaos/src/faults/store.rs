//! Stores and proxies as processes, with their output.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

/// Maximum number of lines that are stored for one process.
const LINES_MAX: usize = 10_000;

/// A line of output.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) at: Instant,
    pub(crate) text: String,
}

/// A process: a store or a proxy. Dropping it ends the process.
pub(crate) struct Store {
    program: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
    output: Arc<Mutex<Vec<Line>>>,
}

impl Store {
    /// Starts the command with these arguments.
    pub(crate) fn start(program: &Path, arguments: Vec<String>) -> Result<Self, String> {
        let program = program.to_owned();
        let mut store = Self { program, arguments, child: None, output: Arc::default() };
        store.restart()?;
        Ok(store)
    }

    /// Starts the process, for the first time or again.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        // The environment of the caller must not change the result.
        command.env_clear().args(&self.arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", self.program.display()))?;
        self.listen(child.stdout.take());
        self.listen(child.stderr.take());
        self.child = Some(child);
        Ok(())
    }

    fn listen(&self, out: Option<impl Read + Send + 'static>) {
        let output = Arc::clone(&self.output);
        thread::spawn(move || {
            for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()) {
                let Ok(line) = line else { return };
                record(&output, line);
            }
        });
    }

    pub(crate) fn output(&self) -> Vec<Line> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The epoch in which the store reports that it leads.
    pub(crate) fn leading_epoch(&self) -> Option<u64> {
        self.child.as_ref()?;
        let mut epoch = None;
        for Line { text, .. } in self.output() {
            if let Some((_, rest)) = text.split_once("leading, in epoch ") {
                epoch = rest.trim().parse().ok();
            } else if text.contains("standby") || text.starts_with(OURS) {
                epoch = None;
            }
        }
        epoch
    }

    pub(crate) const fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// The exit status, if the process has ended without a kill.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok()?
    }

    pub(crate) fn signal(&self, signal: Signal) {
        record(&self.output, format!("{OURS} signal {}", signal.as_raw()));
        let pid = self.child.as_ref().and_then(|child| i32::try_from(child.id()).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills the process, like a crash.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            record(&self.output, format!("{OURS} killed"));
        }
    }

    /// Waits for the end of the process after a signal.
    pub(crate) async fn wait(&mut self, patience: Duration) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if let Some(status) = self.ended() {
                self.child = None;
                record(&self.output, format!("{OURS} ended"));
                return if status.success() { Ok(()) } else { Err(format!("ended with {status}")) };
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(format!("still running {patience:?} after the signal to stop"))
    }
}

/// Prefix of lines that do not come from the process.
const OURS: &str = "--";

fn record(output: &Mutex<Vec<Line>>, text: String) {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    if output.len() < LINES_MAX {
        output.push(Line { at: Instant::now(), text });
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.kill();
    }
}
