//! The command as a process: what it is given, what it says line by line, how it ends. Every wait has a bound.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::Value;
use statestore_tests::timely::HANGS;

/// The command, with nothing from the environment of the tests.
pub(crate) fn statestore() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statestore"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("STATESTORE_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the command to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    Running::start(command.stdin(Stdio::null())).end()
}

/// Runs the command with this on its standard input.
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Ended {
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = running.child.stdin.take().expect("piped");
    stdin.write_all(input).expect("it reads");
    drop(stdin);
    running.end()
}

/// A process that may still run; it is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    out: Receiver<Vec<u8>>,
    err: Receiver<Vec<u8>>,
}

/// How a process has ended, and what it said that was not read before.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) out: Vec<u8>,
    /// Standard error.
    pub(crate) err: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let out = lines_of(child.stdout.take().expect("piped"));
        let err = lines_of(child.stderr.take().expect("piped"));
        Self { child, out, err }
    }

    /// The next line of standard output, without its end.
    pub(crate) fn line(&self) -> String {
        text(self.out.recv_timeout(HANGS).expect("another line in time"))
    }

    /// The next line of standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// The next line of standard error, without its end.
    pub(crate) fn complaint(&self) -> String {
        text(self.err.recv_timeout(HANGS).expect("another line in time"))
    }

    /// Puts a line on its standard input, which must be piped.
    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("it listens");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// Sends a signal, such as `-TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill {name}");
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let (out, err) = (self.rest_of(&self.out), self.rest_of(&self.err));
        let code = self.child.wait().expect("it ends").code();
        Ended { code, out, err: String::from_utf8(err).expect("text") }
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    fn rest_of(&self, lines: &Receiver<Vec<u8>>) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match lines.recv_timeout(HANGS) {
                Ok(line) => all.extend(line),
                Err(error) => {
                    let hangs = matches!(error, std::sync::mpsc::RecvTimeoutError::Timeout);
                    assert!(!hangs, "process {} does not end", self.id());
                    return all;
                }
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Standard output as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("text")
    }

    /// The only line of standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.text().lines().count(), 1, "{self:?}");
        serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Asserts the exit code and that standard output is exactly this.
    #[track_caller]
    pub(crate) fn is(&self, code: i32, out: &str) {
        assert_eq!((self.code, self.text()), (Some(code), out), "{}", self.err);
    }

    /// Asserts the exit code, that nothing was printed, and that standard error tells all of this.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!((self.code, self.text()), (Some(code), ""), "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        }
    }

    /// Asserts success and gives the version that was printed.
    #[track_caller]
    pub(crate) fn version(&self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        let line = self.text().strip_suffix('\n').expect("a line");
        assert_eq!(line.split(':').count(), 3, "{line:?} is no version");
        line.to_owned()
    }
}

fn lines_of(stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            match stream.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if sender.send(line).is_err() => return,
                Ok(_) => {}
            }
        }
    });
    receiver
}

fn text(line: Vec<u8>) -> String {
    let line = String::from_utf8(line).expect("text");
    line.strip_suffix('\n').unwrap_or(&line).to_owned()
}

/// Memory that a process holds, in kilobytes; `None` where the system does not tell.
pub(crate) fn resident_kb(process_id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
