//! SCAN: the keys that match a pattern, and their values.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::{IntoFuture, poll_fn};
use std::mem;
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;

use bytes::Bytes;
use statestore_tokio::{Error, Refusal, ServiceError, StateStore, VersionedValue};
use tokio::task::JoinHandle;

use crate::args::{Keys, Output};
use crate::connection;
use crate::escape::one_line;
use crate::failure::Failure;
use crate::output::{json_text, line};
use crate::requests::NOT_DONE;

/// Values that are asked for at a time.
pub(crate) const READING_MAX: usize = 32;

/// A key, and its value where that is wanted.
type Reading = (Bytes, Option<JoinHandle<Result<Option<VersionedValue>, Error>>>);

/// Bytes of lines that are written at a time.
const CHUNK: usize = 16 * 1024;

pub(crate) async fn run(args: Keys) -> Result<ExitCode, Failure> {
    let store = connection::store(&args.common)?;
    let failed = |error| failure(error, &store);
    let mut keys = store.scan(&args.pattern);
    let mut reading: VecDeque<Reading> = VecDeque::new();
    let reading_max = if args.values { READING_MAX } else { 1 };
    let (mut is_over, mut lines) = (false, Lines::default());
    while !is_over || !reading.is_empty() {
        while !is_over && reading.len() < reading_max {
            match lines.meanwhile(keys.next()).await?.map_err(failed)? {
                Some(key) => {
                    let value = args.values.then(|| tokio::spawn(store.get(&key).into_future()));
                    reading.push_back((key, value));
                }
                None => is_over = true,
            }
        }
        let Some((key, value)) = reading.pop_front() else { continue };
        let found = match value {
            Some(value) => {
                let value = lines.meanwhile(value).await?.map_err(Failure::system)?;
                // It may have been deleted meanwhile.
                let Some(found) = value.map_err(failed)? else { continue };
                Some(found)
            }
            None => None,
        };
        lines.add(&text(args.common.output, &key, found.as_ref())).await?;
    }
    lines.flush().await?;
    store.shutdown().await;
    Ok(if lines.added > 0 { ExitCode::SUCCESS } else { ExitCode::from(NOT_DONE) })
}

/// Lines that are written together with those that follow at once.
#[derive(Default)]
struct Lines {
    waiting: String,
    added: u64,
}

impl Lines {
    async fn add(&mut self, line: &str) -> Result<(), Failure> {
        self.waiting.push_str(line);
        self.added += 1;
        if self.waiting.len() < CHUNK { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        if self.waiting.is_empty() { Ok(()) } else { line(mem::take(&mut self.waiting)).await }
    }

    /// The outcome of `what`. When that has to be waited for, what there is so far is written before.
    async fn meanwhile<T>(&mut self, what: impl Future<Output = T>) -> Result<T, Failure> {
        let mut what = pin!(what);
        let at_hand = poll_fn(|context| Poll::Ready(what.as_mut().poll(context))).await;
        if let Poll::Ready(outcome) = at_hand {
            return Ok(outcome);
        }
        self.flush().await?;
        Ok(what.await)
    }
}

fn text(output: Output, key: &Bytes, found: Option<&VersionedValue>) -> String {
    let value = found.map(|found| &found.value[..]);
    match (output, value) {
        (Output::Json, _) => {
            let key: Cow<'_, str> = String::from_utf8_lossy(key);
            json_text("found", &key, value, found.and_then(|found| found.version.as_ref()))
        }
        (Output::Raw, None) => format!("{}\n", one_line(key)),
        (Output::Raw, Some(value)) => format!("{}\t{}\n", one_line(key), one_line(value)),
    }
}

/// What became of a listing.
pub(crate) fn failure(error: Error, store: &StateStore) -> Failure {
    match error {
        Error::Refused(ServiceError::Known(Refusal::UnknownCommand)) => Failure::bad_input(
            "the store refused: it knows no listing of keys; that is newer than GET and SET",
        ),
        Error::Refused(ServiceError::Known(Refusal::QuotaExceeded)) => {
            Failure::bad_input("the store refused: the pattern is longer than any key may be")
        }
        Error::Refused(ServiceError::Known(Refusal::Syntax)) => Failure::bad_input(
            "the store refused: that is no pattern; [ begins a class such as [ab] or [!ab], ** stands for whole levels, and \
             a special character is written as a class, as [*]",
        ),
        error => Failure::request(error, store),
    }
}
