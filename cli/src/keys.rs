//! SCAN: the keys that match a pattern, and their values.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::IntoFuture;
use std::process::ExitCode;

use bytes::Bytes;
use statestore_tokio::{Error, Refusal, ServiceError, StateStore, VersionedValue};
use tokio::task::JoinHandle;

use crate::args::{Keys, Output};
use crate::connection;
use crate::failure::Failure;
use crate::output::{json_text, line, one_line};
use crate::requests::NOT_DONE;

/// Values that are asked for at a time.
const READING_MAX: usize = 32;

/// A key, and its value where that is wanted.
type Reading = (Bytes, Option<JoinHandle<Result<Option<VersionedValue>, Error>>>);

pub(crate) async fn run(args: Keys) -> Result<ExitCode, Failure> {
    let store = connection::store(&args.common)?;
    let failed = |error| failure(error, &store);
    let mut keys = store.scan(&args.pattern);
    let mut reading: VecDeque<Reading> = VecDeque::new();
    let (mut is_over, mut printed) = (false, 0_u64);
    while !is_over || !reading.is_empty() {
        while !is_over && reading.len() < READING_MAX {
            let Some(key) = keys.next().await.map_err(failed)? else {
                is_over = true;
                break;
            };
            let value = args.values.then(|| tokio::spawn(store.get(&key).into_future()));
            let waits = value.is_some();
            reading.push_back((key, value));
            if !waits {
                break;
            }
        }
        let Some((key, value)) = reading.pop_front() else { continue };
        let found = match value {
            Some(value) => {
                let Some(found) = value.await.map_err(Failure::system)?.map_err(failed)? else {
                    // It was deleted meanwhile.
                    continue;
                };
                Some(found)
            }
            None => None,
        };
        line(text(args.common.output, &key, found.as_ref())).await?;
        printed += 1;
    }
    store.shutdown().await;
    Ok(if printed > 0 { ExitCode::SUCCESS } else { ExitCode::from(NOT_DONE) })
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

fn failure(error: Error, store: &StateStore) -> Failure {
    match error {
        Error::Refused(ServiceError::Known(Refusal::UnknownCommand)) => Failure::bad_input(
            "the store refused: it knows no listing of keys; that is newer than GET and SET",
        ),
        Error::Refused(ServiceError::Known(Refusal::Syntax)) => Failure::bad_input(
            "the store refused: that is no pattern; [ begins a class such as [ab] or [!ab], ** stands for whole levels, and \
             a special character is written as a class, as [*]",
        ),
        error => Failure::request(error, store.status().current().reason()),
    }
}
