//! Ours: the store with its journal, without a network and behind the broker, and the append that bounds both.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::store::{Durability, Record, Store, StoreConfig, encode_records};
use statestore_proto::transport::{Incoming, Publish, ReasonCode, Transmit};
use statestore_sqlite::SqliteJournal;
use statestore_tokio::service::{Journal, ServiceBuilder};
use statestore_tokio::{AsIncoming, Connected, Link, LinkError, LinkEvent, StoreService};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::{Engine, Failure, Figures};
use crate::aside::{Aside, runtime};
use crate::bare::{self, Load, Session};
use crate::race::Lap;
use statestore_benches::stage::{self, Ask};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes that ours commits, appended to a file and synced: what no log that grows can beat.
#[derive(Debug)]
pub struct Append(File);

impl Append {
    /// A new file below this folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn start(below: &Path) -> Result<Self, Failure> {
        Ok(Self(OpenOptions::new().create_new(true).append(true).open(below.join("append"))?))
    }
}

impl Engine for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        let bytes = encode_records(&records(in_flight));
        let mut times = Vec::new();
        let lap = Lap::start();
        while times.len() < requests {
            let lap = Lap::start();
            self.0.write_all(&bytes)?;
            self.0.sync_data()?;
            times.extend(std::iter::repeat_n(lap.time(), in_flight));
        }
        Ok(Figures::new(&times, lap.time()))
    }
}

/// What a store records of so many requests.
fn records(requests: usize) -> Vec<Record> {
    let mut store = Store::new(StoreConfig::new(7).durability(Durability::All));
    for number in 0..requests {
        let payload = stage::payload(Ask::Set, number % super::KEYS);
        let correlation = number.to_be_bytes();
        let mut incoming = stage::incoming(&payload, "client-1");
        incoming.correlation_data = Some(&correlation);
        store.handle_publish(stage::now(), &incoming);
    }
    store.poll_records().map(|batch| batch.records).unwrap_or_default()
}

/// The store and its journal as a service runs them: from requests as they come off the wire to the replies, with no wire.
pub struct Machine {
    requests: Arc<Requests>,
    _service: Aside,
}

impl Machine {
    /// A new one in this folder, for requests about so many keys in turn.
    ///
    /// # Errors
    /// When its directory cannot be made.
    pub fn start(folder: &Path, keys: usize) -> Result<Self, Failure> {
        let journal = SqliteJournal::open(folder)?;
        let config = StoreConfig::new(7).durability(Durability::All);
        Self::over(keys, async move |link| Ok((service(journal, config)?.spawn(link), async || {})))
    }

    /// The store in the service that this makes of a link, and what is to be done when that has ended.
    pub(super) fn over<After: AsyncFnOnce()>(
        keys: usize,
        serve: impl AsyncFnOnce(ClosedLoop) -> Result<(StoreService, After), Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let requests = Arc::new(Requests { keys, ..Requests::default() });
        let link = ClosedLoop { requests: Arc::clone(&requests), events: VecDeque::new() };
        let service = Aside::spawn(async move |told, end| {
            let (service, after) = serve(link).await?;
            service.wait_connected().await?;
            let _ = told.send(0);
            let _ = end.await;
            service.shutdown().await;
            after().await;
            Ok(())
        })?;
        Ok(Self { requests, _service: service })
    }

    /// Asks so much of this kind, so much at a time.
    ///
    /// # Errors
    /// When the store does not answer.
    pub fn ask(&mut self, ask: Ask, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        let lap = Lap::start();
        let times = self.requests.run(ask, requests, in_flight)?;
        Ok(Figures::new(&times, lap.time()))
    }
}

/// A service with this journal.
pub(super) fn service(
    journal: impl Journal,
    config: StoreConfig,
) -> Result<ServiceBuilder, Failure> {
    Ok(StoreService::builder().journal(journal).config(config)?)
}

impl Engine for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }

    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        self.ask(Ask::Set, requests, in_flight)
    }
}

/// Requests that are still to be made, and those that have no reply yet.
#[derive(Default)]
struct Requests {
    keys: usize,
    state: Mutex<State>,
    has_work: Notify,
    is_done: Condvar,
}

#[derive(Default)]
struct State {
    ask: Option<Ask>,
    left: usize,
    in_flight: usize,
    asked: u64,
    waiting: BTreeMap<u64, Lap>,
    times: Vec<Duration>,
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, ask: Ask, requests: usize, in_flight: usize) -> Result<Vec<Duration>, Failure> {
        let mut state = self.lock();
        state.ask = Some(ask);
        (state.left, state.in_flight) = (requests, in_flight);
        self.has_work.notify_one();
        while state.times.len() < requests {
            let waited = self.is_done.wait_timeout(state, PATIENCE);
            let (next, result) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            if result.timed_out() {
                return Err("the store does not answer".into());
            }
        }
        Ok(std::mem::take(&mut state.times))
    }

    fn next(&self) -> Option<Request> {
        let mut state = self.lock();
        let ask = state.ask?;
        if state.left == 0 || state.waiting.len() >= state.in_flight {
            return None;
        }
        state.left -= 1;
        state.asked += 1;
        let asked = state.asked;
        state.waiting.insert(asked, Lap::start());
        let number = usize::try_from(asked).unwrap_or_default() % self.keys.max(1);
        let payload = stage::payload(ask, number);
        Some(Request { payload, correlation: asked.to_be_bytes() })
    }

    fn replied(&self, publish: &Publish) {
        let data = publish.correlation_data.as_ref().map(|data| data.as_bytes().try_into());
        let Some(Ok(correlation)) = data else { return };
        let mut state = self.lock();
        let lap = state.waiting.remove(&u64::from_be_bytes(correlation));
        state.times.extend(lap.map(Lap::time));
        if state.left == 0 && state.waiting.is_empty() {
            self.is_done.notify_all();
        }
    }
}

/// Where there is no wire: replies make room for requests.
pub(super) struct ClosedLoop {
    requests: Arc<Requests>,
    events: VecDeque<LinkEvent<Request>>,
}

pub(super) struct Request {
    payload: Bytes,
    correlation: [u8; 8],
}

impl AsIncoming for Request {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        let mut incoming = stage::incoming(&self.payload, "client-1");
        incoming.correlation_data = Some(&self.correlation);
        Some(incoming)
    }
}

impl Link for ClosedLoop {
    type Message = Request;

    fn client_id(&self) -> &str {
        "statestore"
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        Ok(Connected::default())
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        match transmit {
            Transmit::Subscribe { token, .. } => {
                self.events.push_back(LinkEvent::Subscribed(token, ReasonCode::GRANTED_QOS_1));
            }
            Transmit::Publish(publish) => {
                self.requests.replied(&publish);
                let published = |token| LinkEvent::Published(token, ReasonCode::SUCCESS);
                self.events.extend(publish.token.map(published));
            }
            _ => {}
        }
        Ok(())
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Request>, LinkError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if messages && let Some(request) = self.requests.next() {
                return Ok(LinkEvent::Message(request));
            }
            self.requests.has_work.notified().await;
        }
    }

    async fn disconnect(&mut self) {}
}

/// The embedded broker with a durable store, and a client written directly on the MQTT session.
pub struct Embedded {
    // The connection ends before the broker does.
    load: Load<Session>,
    runtime: Runtime,
    _broker: Aside,
}

impl Embedded {
    /// A new one below this folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn start(below: &Path) -> Result<Self, Failure> {
        let broker = broker(Some(&below.join("embedded")))?;
        let runtime = runtime()?;
        let load = runtime.block_on(Load::new(broker.port, bare::SET))?;
        Ok(Self { load, runtime, _broker: broker })
    }
}

impl Engine for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn run(&mut self, requests: usize, in_flight: usize) -> Result<Figures, Failure> {
        let lap = Lap::start();
        let times = self.runtime.block_on(self.load.run(requests, in_flight))?;
        Ok(Figures::new(&times, lap.time()))
    }
}

/// A broker with a store in it that keeps everything in that folder, or nothing.
///
/// # Errors
/// When it cannot be made.
pub fn broker(folder: Option<&Path>) -> Result<Aside, Failure> {
    let journal = folder.map(SqliteJournal::open).transpose()?;
    Aside::spawn(async move |told, end| {
        let options = statestore_server::Options::new((Ipv4Addr::LOCALHOST, 0));
        let mut service = StoreService::builder();
        if let Some(journal) = journal {
            let config = StoreConfig::new(7).durability(Durability::All);
            service = service.journal(journal).config(config)?;
        }
        let (broker, service) = statestore_server::serve_with(options, service).await?;
        service.wait_connected().await?;
        let _ = told.send(broker.local_addr().port());
        let _ = end.await;
        service.shutdown().await;
        broker.stop().await;
        Ok(())
    })
}
