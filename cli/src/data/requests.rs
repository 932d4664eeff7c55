//! Dump and restore by requests to a running store.

use std::collections::VecDeque;
use std::future::IntoFuture as _;
use std::path::PathBuf;

use bytes::Bytes;
use statestore_server::archive::{Entry, Header, Source, StoredValue};
use statestore_tokio::{Error, Version, VersionedValue};
use tokio::task::{JoinHandle, JoinSet};

use super::file::{self, Output};
use super::unix_now;
use crate::args::Common;
use crate::connection;
use crate::failure::Failure;
use crate::keys::{self, REQUESTS_MAX};
use crate::output::notice;
use crate::progress::Progress;

/// Keys that are being read, in the order of the list.
type Reads = VecDeque<(Bytes, JoinHandle<Result<Option<VersionedValue>, Error>>)>;

/// Keys that are being set. Dropping it ends their requests.
type Writes = JoinSet<(Bytes, Result<Version, Error>)>;

/// Dumps the keys of a store that match a pattern, and returns their number.
pub(crate) async fn dump(
    common: &Common,
    pattern: &str,
    output: &mut Output,
) -> Result<u64, Failure> {
    notice(
        "copying by requests: neither fencing tokens nor expiries are included; concurrent writes \
         may or may not be in it",
    );
    let store = connection::store(common)?;
    let header = Header { source: Source::Requests, issued: None, keys: None };
    output.add(&header.encode()).await?;
    let progress = output.progress(0);
    let mut listing = store.scan(pattern);
    let mut reads = Reads::new();
    let (mut is_over, mut count) = (false, 0);
    while !is_over || !reads.is_empty() {
        while !is_over && reads.len() < REQUESTS_MAX {
            match listing.next().await.map_err(keys::failure)? {
                Some(key) => {
                    let value = tokio::spawn(store.get(&key).into_future());
                    reads.push_back((key, value));
                }
                None => is_over = true,
            }
        }
        let Some((key, value)) = reads.pop_front() else { continue };
        let found = value.await.map_err(Failure::system)?;
        // It may have been deleted since it was listed.
        let Some(found) = found.map_err(Failure::request)? else { continue };
        let stored = StoredValue {
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

/// Sets all keys of a dump, and returns their number.
pub(super) async fn restore(common: &Common, file: Option<PathBuf>) -> Result<u64, Failure> {
    // The store issues new versions, so those of the dump are not checked.
    let mut dump = file::open(file, None).await?;
    notice(match dump.header().source {
        Source::Requests => {
            "restoring through a broker: keys get new versions; the dump contains neither fencing \
             tokens nor expiries, and all keys become durable"
        }
        _ => "restoring through a broker: keys get new versions and no fencing tokens",
    });
    let makes_all_durable = dump.header().makes_all_keys_durable();
    let store = connection::store(common)?;
    let progress = Progress::keys("setting", dump.header().keys.unwrap_or(0));
    let mut writes = Writes::new();
    let (mut count, mut expired) = (0, 0_u64);
    loop {
        let entries = match dump.next().await {
            Ok(Some(entries)) => entries,
            Ok(None) => break,
            Err(error) => return Err(partial_failure(error.into(), count)),
        };
        for Entry { key, stored } in entries {
            progress.advance(1);
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
            if stored.persist || makes_all_durable {
                set = set.persist();
            }
            let set = set.into_future();
            writes.spawn(async move { (key, set.await) });
            while writes.len() >= REQUESTS_MAX {
                count +=
                    settle(&mut writes).await.map_err(|failure| partial_failure(failure, count))?;
            }
        }
    }
    while !writes.is_empty() {
        count += settle(&mut writes).await.map_err(|failure| partial_failure(failure, count))?;
    }
    drop(progress);
    store.shutdown().await;
    if expired > 0 {
        notice(format_args!("skipped {}: expired", super::keys(expired)));
    }
    Ok(count)
}

/// Waits for the next response.
async fn settle(writes: &mut Writes) -> Result<u64, Failure> {
    let Some(written) = writes.join_next().await else { return Ok(0) };
    let (key, set) = written.map_err(Failure::system)?;
    match set {
        Ok(_) => Ok(1),
        Err(error @ (Error::Refused { .. } | Error::Invalid(_))) => {
            Err(Failure::restored_key(&key, error))
        }
        Err(error) => Err(Failure::request(error)),
    }
}

/// An error after some keys were set.
fn partial_failure(failure: Failure, count: u64) -> Failure {
    failure.map(|text| {
        format!("{text}; at least {count} keys were set; correct the cause and run this again")
    })
}
