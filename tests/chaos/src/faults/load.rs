//! Clients that send requests without a pause, watch keys and hold a lock, each on its own threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use statestore_client::{
    Backoff, ClientLink, Error, Options, StateStore, Version, VersionedValue, WatchEvent,
};
use statestore_proto::client::ConfigError;
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_proto::message::Condition;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::faults::recorder::Recorder;

use statestore_models::history::{Action, Outcome, Remove, Reported, Set};

/// Number of clients that send requests.
const REQUESTERS: usize = 6;

/// Number of clients that compete for the lock.
const HOLDERS: usize = 2;

/// Number of clients that watch all of [`WATCHED`].
const WATCHERS: usize = 2;

/// Keys that are never deleted.
pub(crate) const KEPT: [&str; 3] = ["kept-0", "kept-1", "kept-2"];

/// Keys that are deleted and expire.
pub(crate) const PASSING: [&str; 2] = ["passing-0", "passing-1"];

/// Key that holders of the lock write.
pub(crate) const GUARDED: &str = "guarded";

const WATCHED: [&str; 6] = ["kept-0", "kept-1", "kept-2", "passing-0", "passing-1", "guarded"];

/// Interval after which all clients try to set a new key.
const FRESH: Duration = Duration::from_millis(100);

/// Time limit of a request.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// Lease of the lock.
const LEASE: Duration = Duration::from_secs(2);

/// The clients of one run.
pub(crate) struct Load {
    recorder: Recorder,
    is_over: Arc<AtomicBool>,
    clients: Vec<Client>,
    watchers: Vec<Client>,
}

struct Client {
    runtime: Option<Runtime>,
    task: JoinHandle<()>,
    options: Options,
    role: Role,
    /// Number of restarts.
    life: u64,
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Requests,
    Holds,
    Watches,
}

impl Client {
    fn start(
        options: Options,
        role: Role,
        (life, seed): (u64, u64),
        recorder: &Recorder,
        is_over: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| format!("a runtime: {error}"))?;
        let inside = runtime.enter();
        let store = connect(options.clone()).map_err(|error| error.to_string())?;
        drop(inside);
        let (recorder, is_over) = (recorder.clone(), Arc::clone(is_over));
        let name = format!("{}.{life}", options.client_id);
        let work = Work { store, recorder, is_over, name, counter: AtomicU64::new(0) };
        let rng = Rng::with_seed(seed ^ life);
        let task = match role {
            Role::Requests => runtime.spawn(async move { work.send_requests(rng).await }),
            Role::Holds => runtime.spawn(async move { work.hold(rng).await }),
            Role::Watches => runtime.spawn(async move { work.watch().await }),
        };
        Ok(Self { runtime: Some(runtime), task, options, role, life, seed })
    }

    /// Ends the client like a crash: its connection ends without DISCONNECT.
    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Connects a client with short back-off times.
pub(crate) fn connect(options: Options) -> Result<StateStore, ConfigError> {
    let backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_millis(100) };
    let builder = StateStore::builder().timeout(TIMEOUT).backoff(backoff);
    builder.renew_watches(Some(Duration::from_secs(2))).spawn(ClientLink::for_client(options))
}

impl Load {
    pub(crate) fn start(
        recorder: &Recorder,
        options: impl Fn(&str) -> Options,
        rng: &mut Rng,
    ) -> Result<Self, String> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (mut clients, mut watchers) = (Vec::new(), Vec::new());
        let roles = [
            (Role::Watches, WATCHERS, 'w'),
            (Role::Requests, REQUESTERS, 'c'),
            (Role::Holds, HOLDERS, 'h'),
        ];
        for (role, count, letter) in roles {
            for number in 0..count {
                let options = options(&format!("{letter}{number}"));
                let client = Client::start(options, role, (0, rng.u64(..)), recorder, &is_over)?;
                if role == Role::Watches { &mut watchers } else { &mut clients }.push(client);
            }
        }
        Ok(Self { recorder: recorder.clone(), is_over, clients, watchers })
    }

    /// Ends every other client like a crash, and restarts it under the same client id.
    pub(crate) async fn kill(&mut self, away: Duration) -> Result<(), String> {
        for client in self.clients.iter_mut().step_by(2) {
            client.kill();
        }
        sleep(away).await;
        for client in self.clients.iter_mut().step_by(2) {
            let life = (client.life + 1, client.seed);
            let options = client.options.clone();
            *client = Client::start(options, client.role, life, &self.recorder, &self.is_over)?;
        }
        Ok(())
    }

    /// Lets the clients complete their requests, and ends them. Watchers continue.
    pub(crate) async fn stop(&mut self) -> Result<(), String> {
        self.is_over.store(true, Ordering::Relaxed);
        for client in &mut self.clients {
            let ended = tokio::time::timeout(TIMEOUT * 4, &mut client.task).await;
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    return Err(format!("client {}: {error}", client.options.client_id));
                }
                Err(_) => return Err(format!("client {} hangs", client.options.client_id)),
            }
        }
        self.clients.clear();
        Ok(())
    }

    /// Returns whether all watchers still run.
    pub(crate) fn watches(&self) -> bool {
        self.watchers.iter().all(|client| !client.task.is_finished())
    }
}

/// The work of one client.
struct Work {
    store: StateStore,
    recorder: Recorder,
    is_over: Arc<AtomicBool>,
    name: String,
    counter: AtomicU64,
}

impl Work {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.recorder.is_full()
    }

    fn value(&self) -> String {
        format!("{}:{}", self.name, self.counter.fetch_add(1, Ordering::Relaxed))
    }

    async fn send_requests(self, mut rng: Rng) {
        while !self.is_over() {
            let kept = rng.choice(KEPT).unwrap_or(GUARDED);
            let passing = rng.choice(PASSING).unwrap_or(GUARDED);
            match rng.u8(0..100) {
                0..25 => self.set(kept, false, None).await,
                25..50 => get(&self.store, &self.recorder, &self.name, kept).await,
                50..60 => self.set(passing, false, None).await,
                60..65 => {
                    let expires = Duration::from_millis(rng.u64(300..1_500));
                    self.set(passing, true, Some(expires)).await
                }
                65..78 => get(&self.store, &self.recorder, &self.name, passing).await,
                78..83 => self.del(passing).await,
                83..88 => get(&self.store, &self.recorder, &self.name, GUARDED).await,
                _ => {
                    let number = self.recorder.now().as_millis() / FRESH.as_millis();
                    self.set(&format!("fresh-{number}"), true, None).await
                }
            };
            sleep(Duration::from_millis(rng.u64(1..8))).await;
        }
    }

    async fn set(&self, key: &str, if_absent: bool, expires: Option<Duration>) -> Outcome<Hlc> {
        let value = self.value();
        let set = Set {
            value: value.clone().into(),
            condition: if if_absent { Condition::IfAbsent } else { Condition::Always },
            expires: expires.and_then(|expires| u64::try_from(expires.as_millis()).ok()),
            token: None,
        };
        let mut request = self.store.set(key, value);
        if let Some(expires) = expires {
            request = request.expires_after(expires);
        }
        let request = async {
            if !if_absent {
                return request.await.map(applied);
            }
            Ok(request.if_absent().await?.map_or(Outcome::NotApplied(None), applied))
        };
        self.recorder.request(&self.name, key, Action::Set(set), request).await
    }

    async fn del(&self, key: &str) -> Outcome<Hlc> {
        let request = async { self.store.del(key).await.map(removed) };
        let action = Action::Remove(Remove { value: None, token: None });
        self.recorder.request(&self.name, key, action, request).await
    }

    /// Acquires the lock repeatedly, and writes with its token. Then writes once with an older
    /// token, which must be refused.
    async fn hold(self, mut rng: Rng) {
        let lock = self.store.lock("lock").lease(LEASE).acquire_timeout(Duration::from_secs(1));
        let mut older: Option<FencingToken> = None;
        while !self.is_over() {
            let Ok(guard) = lock.acquire().await else {
                sleep(Duration::from_millis(rng.u64(5..50))).await;
                continue;
            };
            for write in 0..rng.u32(3..30) {
                let Some(token) = guard.token().filter(|_| !self.is_over()) else { break };
                let value = self.value();
                let request = guard.set(GUARDED, value.clone());
                let outcome = self.guarded(value, &token, request).await;
                if write == 0
                    && matches!(outcome, Outcome::Applied(_))
                    && let Some(older) = older.replace(token)
                {
                    let value = self.value();
                    let request = self.store.set(GUARDED, value.clone());
                    self.guarded(value, &older, request.fencing_token(older.clone())).await;
                }
                sleep(Duration::from_millis(rng.u64(1..20))).await;
            }
            let _ = guard.release().await;
            sleep(Duration::from_millis(rng.u64(5..50))).await;
        }
    }

    async fn guarded(
        &self,
        value: String,
        token: &FencingToken,
        request: impl IntoFuture<Output = Result<Version, Error>>,
    ) -> Outcome<Hlc> {
        let token = Some(token.hlc().clone());
        let set = Set { value: value.into(), condition: Condition::Always, expires: None, token };
        let request = async { request.await.map(applied) };
        self.recorder.request(&self.name, GUARDED, Action::Set(set), request).await
    }

    async fn watch(self) {
        let mut watches = tokio::task::JoinSet::new();
        for key in WATCHED {
            let Ok(mut watch) = self.store.watch(key).await else { return };
            let (recorder, number) = (self.recorder.clone(), self.recorder.watches(key));
            watches.spawn(async move {
                while let Some(event) = watch.next().await {
                    if let Some(reported) = reported(event) {
                        recorder.reported(number, reported);
                    }
                }
            });
        }
        // The end of one watch ends this task, which the run detects.
        watches.join_next().await;
    }
}

fn applied(version: Version) -> Outcome<Hlc> {
    Outcome::Applied(version.hlc().clone())
}

fn removed(is_removed: bool) -> Outcome<Hlc> {
    if is_removed { Outcome::Removed(None) } else { Outcome::NothingRemoved }
}

fn reported(event: WatchEvent) -> Option<Reported<Hlc>> {
    Some(match event {
        WatchEvent::Changed { value: Some(value), version: Some(version) } => {
            Reported::Changed(value, version.hlc().clone())
        }
        // Every store of this project sends versions.
        WatchEvent::Changed { value: Some(_), version: None } => return None,
        WatchEvent::Changed { value: None, version } => {
            Reported::Gone(version.map(|version| version.hlc().clone()))
        }
        WatchEvent::Live => Reported::Live,
        WatchEvent::Gap => Reported::Gap,
        WatchEvent::Ended(_) => Reported::Ended,
        _ => return None,
    })
}

/// Reads a key.
pub(crate) async fn get(
    store: &StateStore,
    recorder: &Recorder,
    name: &str,
    key: &str,
) -> Outcome<Hlc> {
    let request = async {
        store.get(key).await.map(|found| {
            Outcome::Found(found.and_then(|VersionedValue { value, version }| {
                version.map(|version| (value, version.hlc().clone()))
            }))
        })
    };
    recorder.request(name, key, Action::Get, request).await
}
