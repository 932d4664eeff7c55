//! Requests with their options: nothing is sent before they are awaited.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{IntoBytes, Outcome, Removal, Request, VersionedValue};
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::message::{Condition, KeyPreview, Operand, Refusal, ServiceError};
use tracing::{debug_span, field};

use crate::error::Error;
use crate::fence::Fence;
use crate::handle::StateStore;

impl StateStore {
    /// Reads a value; `None` when there is none.
    pub fn get(&self, key: impl IntoBytes) -> Call<Option<VersionedValue>> {
        Call::new(self, Request::get(key), value)
    }

    /// Stores a value, whatever is stored, and gives its version. The options of the call make it conditional, or let
    /// the value expire.
    pub fn set(&self, key: impl IntoBytes, value: impl IntoBytes) -> Set<Version> {
        Set::new(self, Request::set(key, value))
    }

    /// Removes a key; whether it was there.
    pub fn del(&self, key: impl IntoBytes) -> Call<bool> {
        Call::new(self, Request::del(key), was_removed)
    }

    /// Removes a key if its value is `value`.
    pub fn vdel(&self, key: impl IntoBytes, value: impl IntoBytes) -> Call<Removal> {
        Call::new(self, Request::vdel(key, value), removal)
    }
}

/// Reads the answer out of an outcome.
type Read<R> = fn(Outcome) -> Result<R, Error>;

/// A GET, DEL or VDEL with its options; `.await` sends it.
#[must_use = "a request is sent when it is awaited"]
pub struct Call<R> {
    store: StateStore,
    request: Request,
    /// The lock that this is done under, whose newest token it carries.
    fence: Option<Fence>,
    read: Read<R>,
}

impl<R> Call<R> {
    pub(crate) fn new(store: &StateStore, request: Request, read: Read<R>) -> Self {
        Self { store: store.clone(), request, fence: None, read }
    }

    /// How long this request may take.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.map(|request| request.timeout(timeout))
    }

    /// Carries a fencing token: the store refuses a write when a newer holder of the lock has written the key. Reads go
    /// without.
    pub fn fencing_token(self, token: FencingToken) -> Self {
        self.map(|request| request.fencing_token(token))
    }

    /// Sends it and waits for the answer, in code that is not async; see [`blocking`](crate::blocking). The handle's runtime
    /// must run meanwhile: a current-thread runtime that nobody drives answers nothing, not even a time-out.
    ///
    /// # Errors
    /// As when it is awaited.
    ///
    /// # Panics
    /// In async code, which must not wait.
    #[track_caller]
    pub fn wait(self) -> Result<R, Error> {
        let runtime = self.store.shared.runtime.clone();
        runtime.block_on(self.send())
    }

    pub(crate) fn guarded_by(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    fn map(mut self, change: impl FnOnce(Request) -> Request) -> Self {
        self.request = change(self.request);
        self
    }

    async fn send(self) -> Result<R, Error> {
        let Self { store, request, fence, read } = self;
        let (verb, key) = (request.kind(), KeyPreview(request.subject()));
        let span = debug_span!("request", ?verb, ?key, id = field::Empty);
        let Some(fence) = fence else {
            return read(store.outcome(request, span).await?);
        };
        loop {
            let token = fence.token().ok_or(Error::LockLost)?;
            let guarded = request.clone().fencing_token(token.clone());
            let answer = read(store.outcome(guarded, span.clone()).await?);
            let lower = Error::Refused(ServiceError::Known(Refusal::FencingTokenLower));
            if answer.as_ref().err() != Some(&lower) {
                return answer;
            }
            if fence.fenced_out(token).await {
                return Err(Error::LockLost);
            }
        }
    }
}

impl<R: Send + 'static> IntoFuture for Call<R> {
    type Output = Result<R, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// A SET with its options; `.await` sends it. It gives the version of the value; a conditional one gives `None` when
/// its condition does not hold.
#[must_use = "a request is sent when it is awaited"]
pub struct Set<R>(Call<R>);

impl Set<Version> {
    pub(crate) fn new(store: &StateStore, request: Request) -> Self {
        Self(Call::new(store, request, version))
    }

    /// Only if the key does not exist.
    pub fn if_absent(self) -> Set<Option<Version>> {
        self.on(Condition::IfAbsent)
    }

    /// Only if the key does not exist or has this very value: how a lock is taken and renewed.
    pub fn if_absent_or_equal(self) -> Set<Option<Version>> {
        self.on(Condition::IfAbsentOrEqual)
    }

    /// Only if the key does not exist or has the value `other`. Other stores may not know this form.
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
        self.on(Condition::IfAbsentOrEqualTo(other))
    }

    fn on(self, condition: Condition<Bytes>) -> Set<Option<Version>> {
        let Call { store, request, fence, .. } = self.0;
        let (request, read) = (request.condition(condition), if_applied as Read<_>);
        Set(Call { store, request, fence, read })
    }
}

impl<R> Set<R> {
    /// Sets the expiry of the value, rounded up to whole milliseconds, counted by the store from the moment it
    /// applies the write. With zero the request fails as [`Error::Invalid`].
    pub fn expires_after(self, duration: Duration) -> Self {
        Self(self.0.map(|request| request.expires_after(duration)))
    }

    /// Carries a fencing token: the store refuses the write when a newer holder of the lock has written the key.
    pub fn fencing_token(self, token: FencingToken) -> Self {
        Self(self.0.fencing_token(token))
    }

    /// Sends it and waits for the answer, in code that is not async; see [`blocking`](crate::blocking). The handle's runtime
    /// must run meanwhile: a current-thread runtime that nobody drives answers nothing, not even a time-out.
    ///
    /// # Errors
    /// As when it is awaited.
    ///
    /// # Panics
    /// In async code, which must not wait.
    #[track_caller]
    pub fn wait(self) -> Result<R, Error> {
        self.0.wait()
    }

    pub(crate) fn guarded_by(self, fence: Fence) -> Self {
        Self(self.0.guarded_by(fence))
    }

    /// Asks the store to keep the key on disk. No reply tells whether it does.
    pub fn persist(self) -> Self {
        Self(self.0.map(|request| request.persist(true)))
    }

    /// How long this request may take.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(self.0.timeout(timeout))
    }
}

impl<R: Send + 'static> IntoFuture for Set<R> {
    type Output = Result<R, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        self.0.into_future()
    }
}

fn version(outcome: Outcome) -> Result<Version, Error> {
    // An unconditional SET has no condition that could fail.
    if_applied(outcome)?.ok_or(Error::Unknown)
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

fn was_removed(outcome: Outcome) -> Result<bool, Error> {
    Ok(outcome.into_removal()? == Removal::Removed)
}
