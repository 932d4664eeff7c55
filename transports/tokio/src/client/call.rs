//! Requests with their options. A request is sent when it is awaited.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{
    DelRequest, IntoBytes, Outcome, ReadRequest, Removal, Request, SetRequest, VersionedValue,
    WriteRequest,
};
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::lock::LossReason;
use statestore_proto::message::{Condition, KeyPreview, Operand, Refusal, ServiceError};
use tracing::{debug_span, field};

use crate::client::error::Error;
use crate::client::fence::{Fence, LockLost};
use crate::client::handle::StateStore;
use crate::client::task::Completion;

impl StateStore {
    /// Reads a value; `None` if the key does not exist.
    pub fn get(&self, key: impl IntoBytes) -> Call<Option<VersionedValue>> {
        Call::new(self, Request::get(key), value)
    }

    /// Stores a value, whatever the previous value is, and returns its version. The options of the
    /// call make the write conditional, or let the value expire.
    pub fn set(&self, key: impl IntoBytes, value: impl IntoBytes) -> Set<Version> {
        Call::new(self, Request::set(key, value), version)
    }

    /// Removes a key. Returns whether the key existed.
    pub fn del(&self, key: impl IntoBytes) -> Call<bool, DelRequest> {
        Call::new(self, Request::del(key), was_removed)
    }

    /// Removes a key if its value is `value`.
    pub fn vdel(&self, key: impl IntoBytes, value: impl IntoBytes) -> Call<Removal, DelRequest> {
        Call::new(self, Request::vdel(key, value), removal)
    }
}

/// Reads the reply out of an outcome.
type Read<R> = fn(Outcome) -> Result<R, Error>;

/// A request `Q` with its options; `.await` sends it and returns `R`.
#[must_use = "a request is sent when it is awaited"]
pub struct Call<R, Q = ReadRequest> {
    store: StateStore,
    request: Q,
    timeout: Option<Duration>,
    /// The lock that protects this write; the request carries its newest token.
    fence: Option<Fence>,
    read: Read<R>,
}

/// A SET with its options. It returns the version of the value; a conditional one returns `None` if
/// its condition does not hold.
pub type Set<R> = Call<R, SetRequest>;

impl<R, Q: Into<Request>> Call<R, Q> {
    pub(crate) fn new(store: &StateStore, request: Q, read: Read<R>) -> Self {
        Self { store: store.clone(), request, timeout: None, fence: None, read }
    }

    /// Sets the time limit of this request.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request and blocks this thread until the reply arrives; see
    /// [`blocking`](crate::blocking). The runtime of the handle must run until then: a
    /// current-thread runtime that no thread drives returns nothing, not even a time-out.
    ///
    /// # Errors
    /// As when it is awaited.
    ///
    /// # Panics
    /// In async code, which must not block.
    #[track_caller]
    pub fn wait(self) -> Result<R, Error> {
        let runtime = self.store.shared.runtime.clone();
        let Self { store, request, timeout, fence, read } = self;
        runtime.block_on(send(store, with_timeout(request, timeout), fence, read))
    }

    fn map(mut self, change: impl FnOnce(Q) -> Q) -> Self {
        self.request = change(self.request);
        self
    }
}

impl<R, Q: WriteRequest> Call<R, Q> {
    /// Sets a fencing token: the store refuses the write when a newer holder of the lock has
    /// written the key.
    pub fn fencing_token(self, token: FencingToken) -> Self {
        self.map(|request| request.with_fencing_token(token))
    }

    pub(crate) fn guarded_by(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }
}

impl<R: Send + 'static, Q: Into<Request>> IntoFuture for Call<R, Q> {
    type Output = Result<R, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { store, request, timeout, fence, read } = self;
        Box::pin(send(store, with_timeout(request, timeout), fence, read))
    }
}

impl Set<Version> {
    /// Only if the key does not exist.
    pub fn if_absent(self) -> Set<Option<Version>> {
        self.conditional(Condition::IfAbsent)
    }

    /// Only if the key does not exist or has this very value: how a lock is taken and renewed.
    pub fn if_absent_or_equal(self) -> Set<Option<Version>> {
        self.conditional(Condition::IfAbsentOrEqual)
    }

    /// Only if the key does not exist or has the value `other`. Other stores may not know this
    /// form.
    ///
    /// ```
    /// use statestore_tokio::{Error, Operand, StateStore};
    ///
    /// async fn hand_over(store: &StateStore) -> Result<bool, Error> {
    ///     let old = Operand::new("holder-1".into()).expect("no word of SET");
    ///     let version = store.set("owner", "holder-2").if_absent_or_equal_to(old).await?;
    ///     Ok(version.is_some())
    /// }
    /// ```
    pub fn if_absent_or_equal_to(self, other: Operand<Bytes>) -> Set<Option<Version>> {
        self.conditional(Condition::IfAbsentOrEqualTo(other))
    }

    fn conditional(self, condition: Condition<Bytes>) -> Set<Option<Version>> {
        let Self { store, request, timeout, fence, .. } = self;
        let (request, read) = (request.condition(condition), if_applied as Read<_>);
        Call { store, request, timeout, fence, read }
    }
}

impl<R> Set<R> {
    /// Sets the expiry of the value, rounded up to whole milliseconds, counted by the store from
    /// the moment it applies the write. With zero the request fails as [`Error::Invalid`].
    ///
    /// To renew an expiry, set the same value again on the condition that no other client has set
    /// another one. If the value has expired, this sets it again.
    ///
    /// ```
    /// # use statestore_loopback::Hub;
    /// # use statestore_tokio::{StateStore, StoreService};
    /// use std::time::Duration;
    ///
    /// use statestore_tokio::{Error, Version};
    ///
    /// async fn renew(store: &StateStore) -> Result<Option<Version>, Error> {
    ///     let seen = store.set("seen/thermostat-7", "online").expires_after(Duration::from_secs(60));
    ///     seen.if_absent_or_equal().await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let broker = Hub::new();
    /// # let service = StoreService::builder().spawn(broker.store_link("statestore"));
    /// # service.wait_connected().await?;
    /// # let store = StateStore::builder().spawn(broker.link("thermostat-7"))?;
    /// let first = renew(&store).await?;
    /// assert!(renew(&store).await? > first, "each renewal has a later version");
    /// store.set("seen/thermostat-7", "offline").await?;
    /// assert_eq!(renew(&store).await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn expires_after(self, duration: Duration) -> Self {
        self.map(|request| request.expires_after(duration))
    }

    /// Asks the store to persist the key. No reply confirms it.
    pub fn persist(self) -> Self {
        self.map(|request| request.persist(true))
    }
}

fn with_timeout(request: impl Into<Request>, timeout: Option<Duration>) -> Request {
    let request = request.into();
    match timeout {
        Some(timeout) => request.with_timeout(timeout),
        None => request,
    }
}

async fn send<R>(
    store: StateStore,
    request: Request,
    fence: Option<Fence>,
    read: Read<R>,
) -> Result<R, Error> {
    let (verb, key) = (request.kind(), KeyPreview(request.subject()));
    let span = debug_span!("request", ?verb, ?key, id = field::Empty);
    let Some(fence) = fence else {
        return store.completion(request, span).await?.read(read);
    };
    loop {
        let token = fence.held_token().map_err(Error::LockLost)?;
        let fenced = request.clone().with_fencing_token(token.clone());
        let response = store.completion(fenced, span.clone()).await?.read(read);
        let lower = ServiceError::Known(Refusal::FencingTokenLower);
        if !matches!(&response, Err(Error::Refused { error, .. }) if *error == lower) {
            return response;
        }
        if fence.handle_fenced_out(token).await {
            return Err(Error::LockLost(LockLost::Lost(LossReason::FencedOut)));
        }
    }
}

impl Completion {
    /// Reads the response. The error of a refusal contains the reason.
    fn read<R>(self, read: Read<R>) -> Result<R, Error> {
        let Self { outcome, reason } = self;
        read(outcome).map_err(|error| match error {
            Error::Refused { error, .. } => Error::Refused { error, reason },
            error => error,
        })
    }
}

pub(crate) fn version(outcome: Outcome) -> Result<Version, Error> {
    // An unconditional SET is always applied.
    if_applied(outcome)?.ok_or_else(Error::unexpected_reply)
}

fn if_applied(outcome: Outcome) -> Result<Option<Version>, Error> {
    Ok(outcome.into_version()?)
}

pub(crate) fn value(outcome: Outcome) -> Result<Option<VersionedValue>, Error> {
    Ok(outcome.into_value()?)
}

fn removal(outcome: Outcome) -> Result<Removal, Error> {
    Ok(outcome.into_removal()?)
}

pub(crate) fn was_removed(outcome: Outcome) -> Result<bool, Error> {
    Ok(outcome.into_removal()? == Removal::Removed)
}
