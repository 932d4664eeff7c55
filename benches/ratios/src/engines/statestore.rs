//! Our store with its journal, without a network and in the embedded broker. An append to a file is
//! the lower limit of both.

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
use crate::bare::{self, Load, Session};
use crate::race::Lap;
use crate::server_thread::{ServerThread, runtime};
use statestore_benches::stage::{self, Operation};

/// Maximum time without a response.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A file to which the bytes of our commits are appended, with a sync after each batch.
#[derive(Debug)]
pub struct Append(File);

impl Append {
    /// Creates a file in a folder.
    ///
    /// # Errors
    /// If the file cannot be created.
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

/// Returns the durable log records of SETs.
fn records(requests: usize) -> Vec<Record> {
    let mut store = Store::new(StoreConfig::new(7).durability(Durability::All));
    for number in 0..requests {
        let payload = stage::payload(Operation::Set, number % super::KEYS);
        let correlation = number.to_be_bytes();
        let mut incoming = stage::incoming(&payload, "client-1");
        incoming.correlation_data = Some(&correlation);
        store.handle_publish(stage::now(), &incoming);
    }
    store.poll_records().map(|batch| batch.records).unwrap_or_default()
}

/// A service with a store and its journal, over a link without a network.
pub struct Machine {
    requests: Arc<Requests>,
    _service: ServerThread,
}

impl Machine {
    /// Starts a service with a new data directory. Requests use `keys` keys in turn.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn start(folder: &Path, keys: usize) -> Result<Self, Failure> {
        let journal = SqliteJournal::open(folder)?;
        let config = StoreConfig::new(7).durability(Durability::All);
        Self::over(keys, async move |link| Ok((service(journal, config)?.spawn(link), async || {})))
    }

    /// Starts the service that `serve` creates. Its second result runs after the service has ended.
    pub(crate) fn over<Serve, After>(keys: usize, serve: Serve) -> Result<Self, Failure>
    where
        Serve: AsyncFnOnce(ClosedLoop) -> Result<(StoreService, After), Failure> + Send + 'static,
        After: AsyncFnOnce(),
    {
        let requests = Arc::new(Requests { keys, ..Requests::default() });
        let link = ClosedLoop { requests: Arc::clone(&requests), events: VecDeque::new() };
        let service = ServerThread::spawn(async move |port, end| {
            let (service, after) = serve(link).await?;
            service.wait_connected().await?;
            let _ = port.send(0);
            let _ = end.await;
            service.shutdown().await;
            after().await;
            Ok(())
        })?;
        Ok(Self { requests, _service: service })
    }

    /// Sends requests of one kind, `in_flight` at a time.
    ///
    /// # Errors
    /// If a response is missing.
    pub fn measure(
        &mut self,
        operation: Operation,
        requests: usize,
        in_flight: usize,
    ) -> Result<Figures, Failure> {
        let lap = Lap::start();
        let times = self.requests.run(operation, requests, in_flight, TIMEOUT)?;
        Ok(Figures::new(&times, lap.time()))
    }
}

/// Returns a service with a journal.
pub(crate) fn service(
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
        self.measure(Operation::Set, requests, in_flight)
    }
}

/// Requests that are not sent yet, and those without a response.
#[derive(Default)]
struct Requests {
    keys: usize,
    state: Mutex<State>,
    has_work: Notify,
    is_done: Condvar,
}

#[derive(Default)]
struct State {
    operation: Option<Operation>,
    /// Number of requests that are not sent yet.
    left: usize,
    in_flight: usize,
    /// Number of requests that were sent, over all runs.
    sent: u64,
    /// The requests without a response, by their numbers.
    waiting: BTreeMap<u64, Lap>,
    times: Vec<Duration>,
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(
        &self,
        operation: Operation,
        requests: usize,
        in_flight: usize,
        timeout: Duration,
    ) -> Result<Vec<Duration>, Failure> {
        let mut state = self.lock();
        state.operation = Some(operation);
        (state.left, state.in_flight) = (requests, in_flight);
        self.has_work.notify_one();
        while state.times.len() < requests {
            let responses = state.times.len();
            let waited = self.is_done.wait_timeout(state, timeout);
            let (next, result) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            // A million SETs on a slow disk take longer than the timeout.
            if result.timed_out() && state.times.len() == responses {
                return Err("the store does not respond".into());
            }
        }
        Ok(std::mem::take(&mut state.times))
    }

    fn next(&self) -> Option<Request> {
        let mut state = self.lock();
        let operation = state.operation?;
        if state.left == 0 || state.waiting.len() >= state.in_flight {
            return None;
        }
        state.left -= 1;
        state.sent += 1;
        let sent = state.sent;
        state.waiting.insert(sent, Lap::start());
        let number = usize::try_from(sent).unwrap_or_default() % self.keys.max(1);
        let payload = stage::payload(operation, number);
        Some(Request { payload, correlation: sent.to_be_bytes() })
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

/// A link without a network. Each response allows another request.
pub(crate) struct ClosedLoop {
    requests: Arc<Requests>,
    events: VecDeque<LinkEvent<Request>>,
}

pub(crate) struct Request {
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
    // Dropped before the broker.
    load: Load<Session>,
    runtime: Runtime,
    _broker: ServerThread,
}

impl Embedded {
    /// Starts a broker with a data directory in this folder.
    ///
    /// # Errors
    /// If the broker cannot be started.
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

/// Starts a broker with an embedded store: durable in a folder, or in memory only.
///
/// # Errors
/// If the broker cannot be started.
pub fn broker(folder: Option<&Path>) -> Result<ServerThread, Failure> {
    let journal = folder.map(SqliteJournal::open).transpose()?;
    ServerThread::spawn(async move |port, end| {
        let options = statestore_server::Options::new((Ipv4Addr::LOCALHOST, 0));
        // Enough for all clients of the suite fan-out.
        let options = options.max_connections(4_096);
        let mut service = StoreService::builder();
        if let Some(journal) = journal {
            let config = StoreConfig::new(7).durability(Durability::All);
            service = service.journal(journal).config(config)?;
        }
        let (broker, service) = statestore_server::serve_with(options, service).await?;
        service.wait_connected().await?;
        let _ = port.send(broker.local_addr().port());
        let _ = end.await;
        service.shutdown().await;
        broker.stop().await;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_without_responses_ends_with_an_error() {
        let requests = Requests::default();
        assert!(requests.run(Operation::Set, 1, 1, Duration::from_millis(1)).is_err());
    }
}
