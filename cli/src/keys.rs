//! SCAN: lists the keys that match a pattern, and their values.

use std::collections::VecDeque;
use std::future::{IntoFuture, poll_fn};
use std::mem;
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;

use bytes::Bytes;
use statestore_tokio::{Error, Refusal, VersionedValue};
use tokio::task::JoinHandle;

use crate::args::{Keys, Output};
use crate::connection;
use crate::escape::one_line;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{json_text, line};

/// Maximum number of concurrent requests of a command. They hide the latency of the connection, and
/// leave the store capacity for other clients.
pub(crate) const REQUESTS_MAX: usize = 32;

/// A key, and the read of its value with `--values`.
type Reading = (Bytes, Option<JoinHandle<Result<Option<VersionedValue>, Error>>>);

/// Lines are written in chunks of this many bytes.
const CHUNK: usize = 16 * 1024;

pub(crate) async fn run(args: Keys) -> Result<ExitCode, Failure> {
    let store = connection::store(&args.common)?;
    let failed = failure;
    let mut keys = store.scan(&args.pattern);
    let mut reading: VecDeque<Reading> = VecDeque::new();
    let reads_max = if args.values { REQUESTS_MAX } else { 1 };
    let (mut is_over, mut lines) = (false, Lines::default());
    while !is_over || !reading.is_empty() {
        while !is_over && reading.len() < reads_max {
            match lines.flush_while_waiting(keys.next()).await?.map_err(failed)? {
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
                let value = lines.flush_while_waiting(value).await?.map_err(Failure::system)?;
                // The key may have been deleted since it was listed.
                let Some(found) = value.map_err(failed)? else { continue };
                Some(found)
            }
            None => None,
        };
        lines.add(&text(args.common.format.output, &key, found.as_ref())).await?;
    }
    lines.flush().await?;
    store.shutdown().await;
    Ok(Exit::success_if(lines.added > 0).into())
}

/// Buffer of lines. Lines are written together if the next one is ready without waiting.
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

    /// Awaits a future. If it is pending, writes the buffered lines first.
    async fn flush_while_waiting<T>(
        &mut self,
        future: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let mut future = pin!(future);
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(outcome) = polled {
            return Ok(outcome);
        }
        self.flush().await?;
        Ok(future.await)
    }
}

fn text(output: Output, key: &Bytes, found: Option<&VersionedValue>) -> String {
    let value = found.map(|found| &found.value[..]);
    match (output, value) {
        (Output::Json, _) => {
            json_text("found", key, value, found.and_then(|found| found.version.as_ref()))
        }
        (Output::Text, None) => format!("{}\n", one_line(key)),
        (Output::Text, Some(value)) => format!("{}\t{}\n", one_line(key), one_line(value)),
    }
}

/// Error of a listing.
pub(crate) fn failure(error: Error) -> Failure {
    let refusal = match &error {
        Error::Refused { error, .. } => error.known(),
        _ => None,
    };
    match refusal {
        Some(Refusal::UnknownCommand) => Failure::bad_input(
            "the store refused: it does not support SCAN, which lists keys; use a newer store",
        ),
        Some(Refusal::QuotaExceeded) => Failure::bad_input(
            "the store refused: the pattern is too long; the limit is that of keys",
        ),
        Some(Refusal::Syntax) => Failure::bad_input(
            "the store refused: invalid pattern; [ begins a set such as [ab] or [!ab], ** matches \
             whole levels, and a set such as [*] matches a special character",
        ),
        _ => Failure::request(error),
    }
}
