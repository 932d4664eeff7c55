//! Traces the changes that a process makes to the files of a directory, with `strace`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::killed;

/// One step, ordered by the begin of its system call. The end of a sync is a separate step.
#[derive(Debug)]
pub(crate) enum Event {
    /// Opens a file for writing; creates it if it is missing.
    Open(PathBuf),
    Remove(PathBuf),
    Write {
        path: PathBuf,
        offset: usize,
        bytes: Vec<u8>,
    },
    Resize {
        path: PathBuf,
        length: usize,
    },
    SyncBegins {
        thread: u32,
    },
    SyncEnds {
        path: PathBuf,
        thread: u32,
    },
    /// A line that the process has printed.
    Printed(String),
}

/// Returns whether `strace` is installed and has permission to trace. Otherwise prints that `test`
/// is skipped.
pub(crate) fn is_available(test: &str) -> bool {
    let mut strace = Command::new("strace");
    let status = strace.args(["-qq", "-o", "/dev/null", "true"]).status();
    let is_available = status.is_ok_and(|status| status.success());
    if !is_available {
        println!("{test}: skipped, strace cannot trace here (apt-get install strace)");
    }
    is_available
}

/// Runs [`killed::child`] with the fault `inject` in one of its system calls. Returns the lines
/// that it printed and all its steps.
pub(crate) fn run(dir: &Path, file: &Path, inject: &str) -> (Vec<String>, Vec<Event>) {
    let calls = "openat,unlink,close,write,pwrite64,lseek,ftruncate,fdatasync,fsync";
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-xx", "-s", "100000000", "-e", &format!("trace={calls}")]);
    strace.args(["-e", &format!("inject={inject}"), "-o"]).arg(file);
    strace.arg(std::env::current_exe().unwrap()).args(killed::CHILD).env(killed::DIR, dir);
    strace.output().unwrap();
    let events = Reader::new(dir).read(&std::fs::read_to_string(file).unwrap());
    let printed = events.iter().filter_map(|event| match event {
        Event::Printed(line) => Some(line.clone()),
        _ => None,
    });
    (printed.collect(), events)
}

struct Reader<'a> {
    dir: &'a Path,
    /// Open files of the directory by file descriptor, each with its position.
    open: BTreeMap<u32, (PathBuf, usize)>,
    /// Unfinished calls by thread.
    begun: BTreeMap<u32, String>,
    events: Vec<Event>,
}

impl<'a> Reader<'a> {
    fn new(dir: &'a Path) -> Self {
        let (open, begun) = Default::default();
        Self { dir, open, begun, events: Vec::new() }
    }

    fn read(mut self, text: &str) -> Vec<Event> {
        for line in text.lines() {
            let Some((thread, call)) = line.split_once(' ') else { continue };
            let (Ok(thread), call) = (thread.parse(), call.trim_start()) else { continue };
            if let Some(call) = call.strip_suffix(" <unfinished ...>") {
                self.begins(thread, call);
                self.begun.insert(thread, call.to_owned());
            } else if let Some((_, rest)) = call.split_once(" resumed>") {
                let call = self.begun.remove(&thread).unwrap_or_default() + rest;
                self.ends(thread, &call);
            } else if call.contains('(') {
                self.begins(thread, call);
                self.ends(thread, call);
            }
        }
        self.events
    }

    /// Records the effects that a call can have from its begin on, even if it never ends.
    fn begins(&mut self, thread: u32, call: &str) {
        let Some((name, arguments)) = call.split_once('(') else { return };
        let fields: Vec<&str> = arguments.split(", ").collect();
        let number =
            |at: usize| -> Option<usize> { fields.get(at)?.split(')').next()?.trim().parse().ok() };
        let Some(fd) = number(0).and_then(|fd| u32::try_from(fd).ok()) else { return };
        if name == "write" && fd == 1 {
            let printed = String::from_utf8(unhex(fields[1])).unwrap();
            self.events.extend(printed.lines().map(|line| Event::Printed(line.to_owned())));
        }
        let Some((path, at)) = self.open.get_mut(&fd) else { return };
        let path = path.clone();
        self.events.push(match name {
            "write" => {
                let (offset, bytes) = (*at, unhex(fields[1]));
                *at += bytes.len();
                Event::Write { path, offset, bytes }
            }
            "pwrite64" => {
                Event::Write { path, offset: number(3).unwrap(), bytes: unhex(fields[1]) }
            }
            "ftruncate" => Event::Resize { path, length: number(1).unwrap() },
            "fdatasync" | "fsync" => Event::SyncBegins { thread },
            _ => return,
        });
    }

    /// Records the effects of a finished call.
    fn ends(&mut self, thread: u32, call: &str) {
        let Some((call, result)) = call.rsplit_once(" = ") else { return };
        let Some((name, arguments)) = call.split_once('(') else { return };
        let result = result.split_whitespace().next().and_then(|word| word.parse::<usize>().ok());
        let fields: Vec<&str> = arguments.trim_end().trim_end_matches(')').split(", ").collect();
        let fd = fields.first().and_then(|fd| fd.parse::<u32>().ok());
        match (name, fd, result) {
            ("openat", _, Some(fd)) => {
                let path = PathBuf::from(String::from_utf8(unhex(fields[1])).unwrap());
                if path.starts_with(self.dir) {
                    if fields[2].contains("O_CREAT") {
                        self.events.push(Event::Open(path.clone()));
                    }
                    self.open.insert(u32::try_from(fd).unwrap(), (path, 0));
                }
            }
            ("unlink", _, Some(0)) => {
                let path = PathBuf::from(String::from_utf8(unhex(fields[0])).unwrap());
                if path.starts_with(self.dir) {
                    self.events.push(Event::Remove(path));
                }
            }
            ("close", Some(fd), _) => _ = self.open.remove(&fd),
            ("lseek", Some(fd), Some(offset)) => {
                if let Some((_, at)) = self.open.get_mut(&fd) {
                    *at = offset;
                }
            }
            ("fdatasync" | "fsync", Some(fd), Some(0)) => {
                if let Some((path, _)) = self.open.get(&fd) {
                    self.events.push(Event::SyncEnds { path: path.clone(), thread });
                }
            }
            _ => {}
        }
    }
}

/// Decodes bytes in the form `"\x61\x62"`.
fn unhex(quoted: &str) -> Vec<u8> {
    let digits = quoted.trim_matches('"').split("\\x").skip(1);
    digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}
