//! `import`: sets the keys of an export in a store.

use std::collections::BTreeSet;
use std::process::ExitCode;

use bytes::Bytes;
use serde_json::json;
use statestore_server::archive::{DumpReader, Entry};
use statestore_tokio::{Error, StateStore, Version};
use tokio::task::JoinSet;

use crate::args::{Import, Output};
use crate::connection;
use crate::data::{file, keys, unix_now};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::keys::REQUESTS_MAX;
use crate::output::{self, notice};
use crate::progress::Progress;
use crate::signals::{self, Signals};

/// Number of refused keys that are printed. The others are only counted, since a full store refuses
/// all of them.
const REFUSED_SHOWN: u64 = 10;

pub(crate) async fn run(args: Import) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?.with_hangup()?;
    // The store issues new versions, so those of the file are not checked.
    let opened = file::open(args.file.clone(), None);
    let file = match signals.or_received(opened).await {
        Ok(file) => file?,
        Err(signal) => return Ok(signals::exit_code(signal)),
    };
    let progress = Progress::keys("importing", file.header().keys.unwrap_or(0));
    let mut running = Running {
        store: connection::store(&args.common)?,
        if_absent: args.if_absent,
        persist: file.header().makes_all_keys_durable(),
        progress,
        skip: args.skip,
        number: 0,
        writes: JoinSet::new(),
        open: BTreeSet::new(),
        counts: Counts::default(),
    };
    let stopped = tokio::select! {
        ended = running.import(file) => ended.err(),
        signal = signals.received() => {
            notice(format_args!("stopped; {}", running.remedy()));
            return Ok(signals::exit_code(signal));
        }
    };
    if let Some(failure) = stopped {
        let remedy = running.remedy();
        return Err(failure.map(|text| format!("{text}; {remedy}")));
    }
    let Running { store, progress, counts, skip, number, .. } = running;
    drop(progress);
    store.shutdown().await;
    if number < skip {
        let count = keys(number);
        return Err(Failure::bad_input(format_args!("--skip {skip}: the file has {count}")));
    }
    output::raw(counts.text(args.common.format.output).as_bytes())?;
    Ok(if counts.refused > 0 { Exit::Refused } else { Exit::Success }.into())
}

/// Results of an import.
#[derive(Default)]
struct Counts {
    set: u64,
    not_applied: u64,
    expired: u64,
    refused: u64,
}

impl Counts {
    fn text(&self, output: Output) -> String {
        let Self { set, not_applied, expired, refused } = self;
        match output {
            Output::Text => format!(
                "set {set}, not applied {not_applied}, expired {expired}, refused {refused}\n"
            ),
            Output::Json => {
                let line = json!({
                    "result": "imported", "set": set, "not_applied": not_applied,
                    "expired": expired, "refused": refused,
                });
                format!("{line}\n")
            }
        }
    }
}

/// An import in progress.
struct Running {
    store: StateStore,
    if_absent: bool,
    persist: bool,
    progress: Progress,
    /// Number of keys that are skipped at the start of the file.
    skip: u64,
    /// Number of keys of the file that were read.
    number: u64,
    writes: JoinSet<(u64, Bytes, Result<Option<Version>, Error>)>,
    /// Numbers of the keys that have no result.
    open: BTreeSet<u64>,
    counts: Counts,
}

impl Running {
    async fn import(&mut self, mut file: DumpReader) -> Result<(), Failure> {
        while let Some(entries) = file.next().await? {
            for entry in entries {
                self.progress.advance(1);
                if self.number >= self.skip {
                    while self.writes.len() >= REQUESTS_MAX {
                        self.settle().await?;
                    }
                    self.set(entry);
                }
                self.number += 1;
            }
        }
        while !self.writes.is_empty() {
            self.settle().await?;
        }
        Ok(())
    }

    fn set(&mut self, Entry { key, stored }: Entry) {
        let rest = stored.expires.map(|expires| expires.rest(unix_now()));
        if rest.is_some_and(|rest| rest.is_zero()) {
            self.counts.expired += 1;
            return;
        }
        let key = Bytes::from(key.into_vec());
        let mut set = self.store.set(&key, Bytes::from(stored.value.into_vec()));
        if let Some(rest) = rest {
            set = set.expires_after(rest);
        }
        if stored.persist || self.persist {
            set = set.persist();
        }
        let (number, if_absent) = (self.number, self.if_absent);
        self.open.insert(number);
        self.writes.spawn(async move {
            let result = if if_absent { set.if_absent().await } else { set.await.map(Some) };
            (number, key, result)
        });
    }

    /// Waits for the next response.
    async fn settle(&mut self) -> Result<(), Failure> {
        let Some(written) = self.writes.join_next().await else { return Ok(()) };
        let (number, key, result) = written.map_err(Failure::system)?;
        match result {
            Ok(Some(_)) => self.counts.set += 1,
            Ok(None) => self.counts.not_applied += 1,
            Err(error @ (Error::Refused { .. } | Error::Invalid(_))) => {
                self.counts.refused += 1;
                if self.counts.refused <= REFUSED_SHOWN {
                    notice(Failure::restored_key(&key, error));
                } else if self.counts.refused == REFUSED_SHOWN + 1 {
                    notice("further refused keys are only counted");
                }
            }
            // Its number stays open, so that the next run begins with it.
            Err(error) => return Err(Failure::request(error)),
        }
        self.open.remove(&number);
        Ok(())
    }

    /// Advice after an interruption. A repeated SET is harmless: it sets the same value.
    fn remedy(&self) -> String {
        let first = self.open.first().copied().unwrap_or(self.number).max(self.skip);
        let set = keys_were(self.counts.set);
        match first {
            0 => format!("{set} set; run it again"),
            _ => format!("{set} set; continue with --skip {first}"),
        }
    }
}

fn keys_were(count: u64) -> String {
    format!("{} {}", keys(count), if count == 1 { "was" } else { "were" })
}
