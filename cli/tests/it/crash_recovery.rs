//! Kills a store with a data directory under load, many times. All acknowledged writes and no
//! others must be present. Each write has one effect, versions grow, and fences hold.
//!
//! `STATESTORE_TEST_DEPTH=long` doubles the number of kills in each mode.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use statestore_client::{ClientLink, Options};
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::message::{Refusal, ServiceError};
use statestore_testkit::Depth;
use statestore_tokio::{Backoff, Error, StateStore, VersionedValue};
use tokio::runtime::{Builder, Runtime};

use crate::deployment::{Deployment, Mode, in_each_mode, test_name};

in_each_mode!(acknowledged_writes_survive_kills_under_load);

/// Number of kills in each mode in the check.
const KILLS: u32 = 100;

const WRITERS: usize = 6;
const KEYS: usize = 3;

/// A possible state of a key: its value, and the version if a reply contained it.
type State = Option<(String, Option<Version>)>;

/// One key of one writer.
#[derive(Debug)]
struct Model {
    /// The possible states. There are several if the outcome of a write is unknown.
    may: Vec<State>,
    /// The greatest version so far.
    last: Option<Version>,
    written: u64,
}

impl Default for Model {
    fn default() -> Self {
        Self { may: vec![None], last: None, written: 0 }
    }
}

impl Model {
    /// Checks and records the version of a reply.
    fn saw(&mut self, version: &Version) {
        assert!(self.last.as_ref() <= Some(version), "{version} after {:?}", self.last);
        self.last = Some(version.clone());
    }

    /// Asserts that the state is one of the possible states. It is then the only one.
    fn read(&mut self, key: &str, found: State) {
        let fits = |may: &State| match (may, &found) {
            (None, None) => true,
            // A write that took effect twice has a later version than its reply.
            (Some((value, version)), Some((other, found))) => {
                value == other && (version.is_none() || version == found)
            }
            _ => false,
        };
        assert!(self.may.iter().any(fits), "{key} holds {found:?}, and may hold {:?}", self.may);
        if let Some((_, Some(version))) = &found {
            self.saw(version);
        }
        self.may = vec![found];
    }
}

/// The outcome of a write, or `None` if it is unknown.
fn known<T>(outcome: Result<T, Error>) -> Option<T> {
    match outcome {
        Ok(outcome) => Some(outcome),
        Err(error) => {
            assert!(!matches!(error, Error::Refused { .. } | Error::Invalid(_)), "{error}");
            None
        }
    }
}

/// Writes a value that was never written before, or deletes the key.
async fn write(store: &StateStore, key: &str, model: &Mutex<Model>, dice: u8) {
    let value = {
        let mut model = model.lock().expect("no thread panics while it holds the lock");
        model.written += 1;
        format!("{key}:{}", model.written)
    };
    let only_if_absent = dice % 4 == 1;
    let outcome = match dice % 4 {
        0 | 3 => known(store.set(key, value.clone()).await).map(Some),
        1 => known(store.set(key, value.clone()).if_absent().await),
        _ => {
            let outcome = known(store.del(key).await);
            let mut model = model.lock().expect("no thread panics while it holds the lock");
            match outcome {
                Some(removed) => {
                    let could = |may: &State| may.is_some() == removed;
                    assert!(model.may.iter().any(could), "{key}: {removed}, {:?}", model.may);
                    model.may = vec![None];
                }
                None => model.may.push(None),
            }
            return;
        }
    };
    let mut model = model.lock().expect("no thread panics while it holds the lock");
    match outcome {
        Some(Some(version)) => {
            let could = |may: &State| !only_if_absent || may.is_none();
            assert!(model.may.iter().any(could), "{key}: set, and may hold {:?}", model.may);
            model.saw(&version);
            model.may = vec![Some((value, Some(version)))];
        }
        // Not applied.
        Some(None) => {
            model.may.retain(Option::is_some);
            assert!(!model.may.is_empty(), "{key}: not applied, though it is absent");
        }
        None if only_if_absent && !model.may.contains(&None) => {}
        None => model.may.push(Some((value, None))),
    }
}

fn connect(here: &Deployment, name: &str) -> StateStore {
    let options = Options::new(name, "127.0.0.1", here.port());
    // The client reconnects as soon as the broker runs.
    let backoff = Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(20) };
    let builder = StateStore::builder().timeout(Duration::from_secs(5)).backoff(backoff);
    builder.spawn(ClientLink::for_client(options)).expect("a client id")
}

struct Directory(std::path::PathBuf);

impl Directory {
    fn new() -> Self {
        let name = format!("{}-{}", test_name().replace("::", "-"), std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn start(&self, mode: Mode) -> Option<Deployment> {
        mode.start(&["--data-dir", self.0.to_str().expect("text"), "--durable", "all"])
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn acknowledged_writes_survive_kills_under_load(mode: Mode) {
    let directory = Directory::new();
    let Some(mut here) = directory.start(mode) else { return };
    let kills = Depth::of_this_run().choose(KILLS, KILLS, 2 * KILLS);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let mut rng = fastrand::Rng::with_seed(7);
    let models: Arc<BTreeMap<String, Mutex<Model>>> = Arc::new(
        (0..WRITERS * KEYS)
            .map(|number| (format!("w{}-{}", number / KEYS, number % KEYS), Mutex::default()))
            .collect(),
    );
    let stores: Vec<StateStore> =
        (0..WRITERS).map(|writer| connect(&here, &format!("w{writer}"))).collect();
    let reader = connect(&here, "reader");
    let fenced = fence(&runtime, &reader);
    let mut written = 0;
    for round in 0..kills {
        let is_over = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(writer, store)| {
                let (store, models, is_over) =
                    (store.clone(), Arc::clone(&models), Arc::clone(&is_over));
                let mut rng = rng.fork();
                runtime.spawn(async move {
                    while !is_over.load(Ordering::Relaxed) {
                        let key = format!("w{writer}-{}", rng.usize(0..KEYS));
                        write(&store, &key, &models[&key], rng.u8(..)).await;
                    }
                })
            })
            .collect();
        let load = Duration::from_millis(rng.u64(2..60));
        runtime.block_on(async { tokio::time::sleep(load).await });
        here.kill_store();
        is_over.store(true, Ordering::Relaxed);
        here.start_store();
        for writer in writers {
            runtime.block_on(writer).expect("no write contradicts another");
        }
        for (key, model) in &*models {
            let found = runtime.block_on(read(&reader, key));
            let found = found.map(|found| {
                (String::from_utf8(found.value.to_vec()).expect("text"), found.version)
            });
            model.lock().expect("no thread panics while it holds the lock").read(key, found);
        }
        refuse_older(&runtime, &reader, &fenced, round);
        written = models.values().map(|model| model.lock().expect("whole").written).sum();
    }
    println!("{kills} kills, {written} writes");
    assert!(written > u64::from(kills), "{written} writes");
}

/// Reads a key. Repeats the request if the connection was an old one.
async fn read(store: &StateStore, key: &str) -> Option<VersionedValue> {
    loop {
        match store.get(key).await {
            Ok(found) => return found,
            Err(error) => assert!(!matches!(error, Error::Refused { .. }), "{error}"),
        }
    }
}

/// Fences a key. Returns an older token.
fn fence(runtime: &Runtime, store: &StateStore) -> FencingToken {
    runtime.block_on(async {
        let older = store.set("token", "1").await.expect("set").to_fencing_token();
        let newer = store.set("token", "2").await.expect("set").to_fencing_token();
        store.set("fenced", "v").fencing_token(newer).await.expect("set");
        older
    })
}

fn refuse_older(runtime: &Runtime, store: &StateStore, older: &FencingToken, round: u32) {
    let write = async || store.set("fenced", "w").fencing_token(older.clone()).await;
    let outcome = runtime.block_on(async {
        loop {
            match write().await {
                Err(Error::ConnectionLost | Error::NotSent { .. } | Error::TimedOut) => {}
                outcome => return outcome,
            }
        }
    });
    let lower = ServiceError::Known(Refusal::FencingTokenLower);
    let refused = Error::Refused { error: lower, reason: None };
    assert_eq!(outcome, Err(refused), "after kill {round}");
}
