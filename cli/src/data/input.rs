//! A dump that is read on a thread of its own, so that a signal is heard meanwhile.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::format::{Entry, Header, LineError, Lines};
use super::named;
use crate::failure::Failure;

/// Bytes of lines that are handed over together, or one line if that has more.
const PORTION_BYTES: usize = 512 << 10;

/// Portions that wait; the thread has one more in its hands.
const PORTIONS_MAX: usize = 1;

/// A dump.
pub(super) struct Input {
    pub(super) header: Header,
    portions: mpsc::Receiver<Result<Vec<Entry>, Failure>>,
}

impl Input {
    /// Begins to read a file, or standard input.
    pub(super) async fn open(file: Option<PathBuf>) -> Result<Self, Failure> {
        let (sender, portions) = mpsc::channel(PORTIONS_MAX);
        let (first, header) = tokio::sync::oneshot::channel();
        let file = file.filter(|file| file != Path::new("-"));
        tokio::task::spawn_blocking(move || {
            let name = file.as_deref().map_or_else(|| "standard input".to_owned(), named);
            let input: Box<dyn BufRead> = match file.map(File::open) {
                None => Box::new(BufReader::new(io::stdin())),
                Some(Ok(file)) => Box::new(BufReader::new(file)),
                Some(Err(error)) => {
                    // Whoever began it may have been stopped.
                    let _ = first.send(Err(unread(&name, &error)));
                    return;
                }
            };
            let mut reading = Reading { name, lines: Lines::new(input), keys: 0, expected: None };
            let header = reading.header();
            let is_dump = header.is_ok();
            if first.send(header).is_err() || !is_dump {
                return;
            }
            while let Some(portion) = reading.portion().transpose() {
                let is_last = portion.is_err();
                if sender.blocking_send(portion).is_err() || is_last {
                    return;
                }
            }
        });
        let header = header.await.map_err(Failure::system)??;
        Ok(Self { header, portions })
    }

    /// The next entries; `None` when there are no more.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Entry>>, Failure> {
        self.portions.recv().await.transpose()
    }
}

struct Reading {
    name: String,
    lines: Lines<Box<dyn BufRead>>,
    /// Lines of keys so far.
    keys: u64,
    /// What the header says of them.
    expected: Option<u64>,
}

impl Reading {
    fn header(&mut self) -> Result<Header, Failure> {
        let header = match self.lines.next() {
            Ok(Some(line)) => Header::decode(line).map_err(|what| self.line(&what))?,
            Ok(None) => {
                let name = &self.name;
                return Err(Failure::bad_input(format_args!(
                    "{name}: there is nothing in it; name a dump"
                )));
            }
            Err(error) => return Err(self.failure(error)),
        };
        self.expected = header.keys;
        Ok(header)
    }

    /// The next entries; `None` at the end.
    fn portion(&mut self) -> Result<Option<Vec<Entry>>, Failure> {
        let (mut portion, mut bytes) = (Vec::new(), 0);
        while bytes < PORTION_BYTES {
            let entry = match self.lines.next() {
                Ok(None) => break,
                Ok(Some(line)) => {
                    bytes += line.len();
                    Entry::decode(line).map_err(|what| self.line(&what))?
                }
                Err(error) => return Err(self.failure(error)),
            };
            portion.push(entry);
            self.keys += 1;
        }
        if !portion.is_empty() {
            return Ok(Some(portion));
        }
        match self.expected {
            Some(expected) if expected != self.keys => Err(Failure::bad_input(format_args!(
                "{}: its first line says that {expected} keys follow, and there are {}: take the whole dump, or mend that \
                 number",
                self.name, self.keys
            ))),
            _ => Ok(None),
        }
    }

    fn failure(&self, error: LineError) -> Failure {
        match error {
            LineError::Io(error) => unread(&self.name, &error),
            LineError::TooLong => self.line("it is longer than the 16 MiB of a line"),
        }
    }

    /// What is wrong with the last line.
    fn line(&self, what: &str) -> Failure {
        let (name, number) = (&self.name, self.lines.number());
        Failure::bad_input(format_args!(
            "{name}, line {number}: {what}; mend that line, or dump again"
        ))
    }
}

fn unread(name: &str, error: &io::Error) -> Failure {
    Failure::bad_input(format_args!("{name} cannot be read: {error}; name a dump"))
}
