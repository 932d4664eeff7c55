//! The same by requests, as far as the protocol goes.

use std::collections::VecDeque;
use std::future::IntoFuture as _;
use std::path::PathBuf;

use bytes::Bytes;
use statestore_tokio::{Error, Refusal, ServiceError, Version, VersionedValue};
use tokio::task::JoinHandle;

use super::compact::unix_now;
use super::dump::Output;
use super::format::{Entry, Header, Source, Stored};
use super::input::Input;
use crate::args::Common;
use crate::connection;
use crate::escape::one_line;
use crate::failure::Failure;
use crate::keys::{self, READING_MAX};
use crate::output::say;
use crate::progress::Progress;

/// Characters of a key that are shown.
const SHOWN_MAX: usize = 200;

/// Keys that are asked for, and the answers to come.
type Asked<T> = VecDeque<(Bytes, JoinHandle<Result<T, Error>>)>;

/// Dumps all keys of the store at this broker; says how many.
pub(super) async fn dump(common: &Common, output: &mut Output) -> Result<u64, Failure> {
    say(
        "through a broker: fences and expiries are not known, and what is written meanwhile is in the dump or not",
    );
    let store = connection::store(common)?;
    let header = Header { source: Source::Requests, issued: None, keys: None };
    output.add(&header.encode()).await?;
    let progress = output.progress(0);
    let mut listing = store.scan("*");
    let mut asked: Asked<Option<VersionedValue>> = VecDeque::new();
    let (mut is_over, mut count) = (false, 0);
    while !is_over || !asked.is_empty() {
        while !is_over && asked.len() < READING_MAX {
            match listing.next().await.map_err(keys::failure)? {
                Some(key) => {
                    let value = tokio::spawn(store.get(&key).into_future());
                    asked.push_back((key, value));
                }
                None => is_over = true,
            }
        }
        let Some((key, value)) = asked.pop_front() else { continue };
        let found = value.await.map_err(Failure::system)?;
        // It may have been deleted meanwhile.
        let Some(found) = found.map_err(failure)? else { continue };
        let stored = Stored {
            value: found.value.to_vec().into(),
            version: found.version,
            fencing_token: None,
            expires: None,
            persist: false,
        };
        output.add_entry(&Entry { key: key.to_vec().into(), stored }).await?;
        progress.advance(1);
        count += 1;
    }
    drop(progress);
    store.shutdown().await;
    Ok(count)
}

/// Sets all keys of a dump; says how many.
pub(super) async fn restore(common: &Common, file: Option<PathBuf>) -> Result<u64, Failure> {
    let mut input = Input::open(file).await?;
    say(match input.header.source {
        Source::Directory => "through a broker: versions are new ones, and fences are not set",
        Source::Requests => {
            "through a broker: versions are new ones, and the dump knows no fences and no expiries, nor which keys were \
             kept, so the store is asked to keep all"
        }
    });
    let are_kept = input.header.are_kept();
    let store = connection::store(common)?;
    let progress = Progress::keys("setting", input.header.keys.unwrap_or(0));
    let mut asked: Asked<Version> = VecDeque::new();
    let (mut count, mut expired) = (0, 0_u64);
    loop {
        let entries = match input.next().await {
            Ok(Some(entries)) => entries,
            Ok(None) => break,
            Err(failure) => return Err(partly(failure, count)),
        };
        for Entry { key, stored } in entries {
            let rest = stored.expires.map(|expires| expires.rest(unix_now()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                expired += 1;
                continue;
            }
            let key = Bytes::from(key.into_vec());
            let mut set = store.set(&key, Bytes::from(stored.value.into_vec()));
            if let Some(rest) = rest {
                set = set.expires_after(rest);
            }
            if stored.persist || are_kept {
                set = set.persist();
            }
            asked.push_back((key, tokio::spawn(set.into_future())));
            while asked.len() >= READING_MAX {
                count += settle(&mut asked).await.map_err(|failure| partly(failure, count))?;
                progress.advance(1);
            }
        }
    }
    while !asked.is_empty() {
        count += settle(&mut asked).await.map_err(|failure| partly(failure, count))?;
    }
    drop(progress);
    store.shutdown().await;
    if expired > 0 {
        say(format_args!("{expired} had expired and were left out"));
    }
    Ok(count)
}

/// Waits for the oldest.
async fn settle(asked: &mut Asked<Version>) -> Result<u64, Failure> {
    let Some((key, set)) = asked.pop_front() else { return Ok(0) };
    match set.await.map_err(Failure::system)? {
        Ok(_) => Ok(1),
        Err(error @ (Error::Refused { .. } | Error::Invalid(_))) => Err(of_key(&key, error)),
        Err(error) => Err(failure(error)),
    }
}

/// Why this key was not set, when others might be.
fn of_key(key: &[u8], error: Error) -> Failure {
    let is_fenced = matches!(
        error,
        Error::Refused {
            error: ServiceError::Known(Refusal::FencingTokenRequired | Refusal::FencingTokenLower),
            ..
        }
    );
    let advice = match is_fenced {
        true => {
            "; it is fenced there, and requests bring no fence back: only `data restore DIR` restores such keys"
        }
        false => "",
    };
    let what = failure(error);
    let mut key = one_line(key).into_owned();
    if let Some((end, _)) = key.char_indices().nth(SHOWN_MAX) {
        key.truncate(end);
        key.push_str("...");
    }
    Failure::bad_input(format_args!("the key {key}: {what}{advice}"))
}

fn failure(error: Error) -> Failure {
    Failure::request(error)
}

/// What went wrong after some keys were set.
fn partly(failure: Failure, count: u64) -> Failure {
    let text = |text| {
        format!("{text}; {count} keys were set before, so run this again once that is mended")
    };
    match failure {
        Failure::Refused(what) => Failure::Refused(text(what)),
        Failure::Unreachable(what) => Failure::Unreachable(text(what)),
        Failure::Output(what) => Failure::Output(text(what)),
        Failure::Storage(what) => Failure::Storage(text(what)),
    }
}
