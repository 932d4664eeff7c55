//! Requests for several keys at once.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use statestore_proto::client::{
    DelRequest, IntoBytes, ReadRequest, Request, SetRequest, VersionedValue,
};
use statestore_proto::hlc::Version;

use crate::client::call::{self, Call};
use crate::client::error::Error;
use crate::client::handle::StateStore;

/// Default of [`Batch::in_flight`].
const IN_FLIGHT: usize = 64;
/// Maximum. More requests would fill the queue of the handle, so that other requests wait.
const IN_FLIGHT_MAX: usize = 256;

impl StateStore {
    /// Reads the values of several keys, with a result for each key in the order of the keys. See
    /// [`Batch`]: the values are not a snapshot.
    ///
    /// ```
    /// use statestore_tokio::{Error, StateStore};
    ///
    /// async fn temperatures(store: &StateStore) -> Result<(), Error> {
    ///     let keys = ["rooms/1", "rooms/2"];
    ///     for (key, found) in keys.iter().zip(store.get_many(keys).await) {
    ///         println!("{key}: {:?}", found?);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn get_many<K: IntoBytes>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Batch<Option<VersionedValue>> {
        let requests = keys.into_iter().map(Request::get);
        Batch::new(requests.map(|request| Call::new(self, request, call::value)))
    }

    /// Stores several values, with the version of each in the order of the pairs. See [`Batch`]:
    /// some writes may be applied and others not.
    ///
    /// Pairs with the same key are applied in any order.
    pub fn set_many<K: IntoBytes, V: IntoBytes>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Batch<Version, SetRequest> {
        let requests = pairs.into_iter().map(|(key, value)| Request::set(key, value));
        Batch::new(requests.map(|request| Call::new(self, request, call::version)))
    }

    /// Removes several keys. Each result is whether the key existed, in the order of the keys. See
    /// [`Batch`]: some keys may be removed and others not.
    pub fn delete_many<K: IntoBytes>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Batch<bool, DelRequest> {
        let requests = keys.into_iter().map(Request::del);
        Batch::new(requests.map(|request| Call::new(self, request, call::was_removed)))
    }
}

/// Requests `Q` for several keys; `.await` sends them and returns a result for each, in order.
///
/// A batch is not a transaction: the protocol lacks these. Each request is sent on its own, can
/// fail on its own, and other clients can write between any two. Dropping the future cancels the
/// requests without a result; some of them may have been applied.
///
/// Memory: the requests of the whole batch, and all results. At most
/// [`in_flight`](Self::in_flight) requests await their response.
#[must_use = "requests are sent when the batch is awaited"]
pub struct Batch<R, Q = ReadRequest> {
    calls: Vec<Call<R, Q>>,
    in_flight: usize,
}

impl<R, Q: Into<Request>> Batch<R, Q> {
    fn new(calls: impl Iterator<Item = Call<R, Q>>) -> Self {
        Self { calls: calls.collect(), in_flight: IN_FLIGHT }
    }

    /// Sets how many requests await their response at a time: 1 to 256, 64 by default.
    pub fn in_flight(mut self, requests: usize) -> Self {
        self.in_flight = requests.clamp(1, IN_FLIGHT_MAX);
        self
    }

    /// Changes each request, for example to set its time limit or the expiry of its value.
    ///
    /// ```
    /// use std::time::Duration;
    /// use statestore_tokio::StateStore;
    ///
    /// async fn report(store: &StateStore) -> bool {
    ///     let states = store.set_many([("lamps/1", "on"), ("lamps/2", "off")]);
    ///     let states = states.each(|set| set.expires_after(Duration::from_secs(60)));
    ///     states.await.iter().all(Result::is_ok)
    /// }
    /// ```
    pub fn each(mut self, change: impl FnMut(Call<R, Q>) -> Call<R, Q>) -> Self {
        self.calls = self.calls.into_iter().map(change).collect();
        self
    }
}

impl<R: Send + Unpin + 'static, Q: Into<Request> + Send + Unpin + 'static> IntoFuture
    for Batch<R, Q>
{
    type Output = Vec<Result<R, Error>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let results = self.calls.iter().map(|_| None).collect();
        Box::pin(Running {
            waiting: self.calls.into_iter(),
            next: 0,
            in_flight: self.in_flight,
            running: Vec::new(),
            results,
        })
    }
}

impl<R, Q> fmt::Debug for Batch<R, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("calls", &self.calls.len())
            .field("in_flight", &self.in_flight)
            .finish()
    }
}

/// A request in progress.
type Response<R> = Pin<Box<dyn Future<Output = Result<R, Error>> + Send>>;

/// A batch in progress.
struct Running<R, Q> {
    waiting: vec::IntoIter<Call<R, Q>>,
    /// Position of the first waiting call.
    next: usize,
    in_flight: usize,
    running: Vec<(usize, Response<R>)>,
    results: Vec<Option<Result<R, Error>>>,
}

impl<R: Send + Unpin + 'static, Q: Into<Request> + Unpin> Future for Running<R, Q> {
    type Output = Vec<Result<R, Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            let free = this.in_flight - this.running.len();
            for call in this.waiting.by_ref().take(free) {
                this.running.push((this.next, call.into_future()));
                this.next += 1;
            }
            if this.running.is_empty() {
                return Poll::Ready(this.results.drain(..).flatten().collect());
            }
            let before = this.running.len();
            this.running.retain_mut(|(position, call)| match call.as_mut().poll(context) {
                Poll::Ready(result) => {
                    this.results[*position] = Some(result);
                    false
                }
                Poll::Pending => true,
            });
            if this.running.len() == before {
                return Poll::Pending;
            }
        }
    }
}
