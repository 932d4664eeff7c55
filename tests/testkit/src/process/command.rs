//! A command as a process: its input, its output line by line, and its exit code. Every wait has a
//! bound.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use serde_json::Value;

use crate::process::HANGS;

/// Runs the command until it exits.
///
/// # Panics
/// Panics if it cannot be started or does not exit in time.
pub fn run(command: &mut Command) -> Ended {
    Running::start(command.stdin(Stdio::null())).end()
}

/// Runs the command with `input` as its standard input.
///
/// # Panics
/// Panics if it cannot be started, does not read its input or does not exit in time.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Ended {
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = running.child.stdin.take().expect("piped");
    stdin.write_all(input).expect("the command reads its input");
    drop(stdin);
    running.end()
}

/// A running process. Dropping it kills the process.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: Receiver<Vec<u8>>,
    err: Receiver<Vec<u8>>,
}

/// The exit code of a process, and the part of its output that was not read before.
#[derive(Debug)]
pub struct Ended {
    /// Exit code, or `None` if a signal ended the process.
    pub code: Option<i32>,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
}

#[expect(clippy::must_use_candidate, reason = "a call may only wait or assert")]
impl Running {
    /// Starts the command.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let out = lines_of(child.stdout.take().expect("piped"));
        let err = lines_of(child.stderr.take().expect("piped"));
        Self { child, out, err }
    }

    /// Returns the next line of standard output, without the line feed.
    ///
    /// # Panics
    /// If no line arrives in time.
    pub fn line(&self) -> String {
        text(self.out.recv_timeout(HANGS).unwrap_or_else(|error| {
            let errors: Vec<_> = self.err.try_iter().map(text).collect();
            panic!("no line in time: {error}; standard error: {errors:#?}")
        }))
    }

    /// Returns the next line of standard output as JSON.
    ///
    /// # Panics
    /// If no line arrives in time, or if it is not JSON.
    pub fn json(&self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Returns the next line of standard error, without the line feed.
    ///
    /// # Panics
    /// If no line arrives in time.
    pub fn complaint(&self) -> String {
        text(self.err.recv_timeout(HANGS).expect("another line in time"))
    }

    /// Writes a line to standard input.
    ///
    /// # Panics
    /// If standard input is not piped or is closed.
    pub fn write_line(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("the command reads its input");
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it still runs.
    ///
    /// # Panics
    /// Panics if the system does not report its state.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// Sends a signal, such as `-TERM`.
    ///
    /// # Panics
    /// Panics if the signal cannot be sent.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill {name}");
    }

    /// Waits until it exits.
    ///
    /// # Panics
    /// Panics if it does not exit in time.
    pub fn end(mut self) -> Ended {
        let (out, err) = (self.rest_of(&self.out), self.rest_of(&self.err));
        let code = self.child.wait().expect("the process exits").code();
        Ended { code, out, err: String::from_utf8(err).expect("text") }
    }

    /// Kills it, like a crash.
    ///
    /// # Panics
    /// Panics if it cannot be killed.
    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("the process exits");
    }

    fn rest_of(&self, lines: &Receiver<Vec<u8>>) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match lines.recv_timeout(HANGS) {
                Ok(line) => all.extend(line),
                Err(error) => {
                    let hangs = matches!(error, RecvTimeoutError::Timeout);
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

#[expect(clippy::must_use_candidate, reason = "a call may only wait or assert")]
impl Ended {
    /// Returns standard output as text.
    ///
    /// # Panics
    /// Panics if it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("text")
    }

    /// Returns standard output as JSON.
    ///
    /// # Panics
    /// Panics if it is not one line of JSON.
    pub fn json(&self) -> Value {
        assert_eq!(self.text().lines().count(), 1, "{self:?}");
        serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Asserts the exit code and the whole standard output.
    ///
    /// # Panics
    /// Panics if one of them differs.
    #[track_caller]
    pub fn is(&self, code: i32, out: &str) {
        assert_eq!((self.code, self.text()), (Some(code), out), "{}", self.err);
    }

    /// Asserts the exit code, an empty standard output, and that standard error contains these
    /// parts.
    ///
    /// # Panics
    /// Panics if one of them differs.
    #[track_caller]
    pub fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!((self.code, self.text()), (Some(code), ""), "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        }
    }

    /// Asserts success and returns the printed version.
    ///
    /// # Panics
    /// Panics if the exit code is not 0 or the output is not a version.
    #[track_caller]
    pub fn version(&self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        let line = self.text().strip_suffix('\n').expect("a line");
        assert_eq!(line.split(':').count(), 3, "{line:?} is not a version");
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
