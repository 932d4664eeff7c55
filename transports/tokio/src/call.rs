//! Requests with their options: nothing is sent before they are awaited.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Outcome, Request};
use statestore_proto::hlc::{FencingToken, Version};
use statestore_proto::message::{
    Command, Condition, Expiry, KeyPreview, Operand, Refusal, Reply, ServiceError,
};
use tracing::{debug_span, field};

use crate::error::Error;
use crate::handle::StateStore;
use crate::lock::Fence;

/// A value that was found.
#[derive(Clone, PartialEq, Eq)]
pub struct Found {
    /// The value.
    pub value: Bytes,
    /// Its version.
    pub version: Option<Version>,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Found {{ value: <{} bytes>, version: {:?} }}", self.value.len(), self.version)
    }
}

/// What a conditional deletion did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The key is gone.
    Removed,
    /// There was no such key.
    Absent,
    /// The key has another value and stays.
    Different,
}

/// Reads the answer out of an outcome.
type Read<R> = fn(Outcome) -> Result<R, Error>;

/// A GET, DEL or VDEL with its options; `.await` sends it.
#[must_use = "a request is sent when it is awaited"]
pub struct Call<R> {
    store: StateStore,
    command: Command<Bytes>,
    options: Options,
    read: Read<R>,
}

/// What every request may carry.
#[derive(Default)]
struct Options {
    timeout: Option<Duration>,
    fencing_token: Option<FencingToken>,
    /// The lock that this is done under, whose newest token it carries.
    fence: Option<Fence>,
    persist: bool,
}

impl<R> Call<R> {
    pub(crate) fn new(store: &StateStore, command: Command<Bytes>, read: Read<R>) -> Self {
        Self { store: store.clone(), command, options: Options::default(), read }
    }

    /// How long this request may take.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Carries a fencing token: the store refuses a write when a newer holder of the lock has written the key. Reads go
    /// without.
    pub fn fencing_token(mut self, token: FencingToken) -> Self {
        self.options.fencing_token = Some(token);
        self
    }

    pub(crate) fn guarded_by(mut self, fence: Fence) -> Self {
        self.options.fence = Some(fence);
        self
    }

    async fn send(self) -> Result<R, Error> {
        let Self { store, command, options, read } = self;
        let (verb, key) = (command.kind(), KeyPreview(command.key()));
        let span = debug_span!("request", ?verb, ?key, id = field::Empty);
        let Some(fence) = &options.fence else {
            let token = options.fencing_token.clone();
            return read(store.outcome(options.request(command, token), span).await?);
        };
        loop {
            let token = fence.token().ok_or(Error::LockLost)?;
            let request = options.request(command.clone(), Some(token.clone()));
            let answer = read(store.outcome(request, span.clone()).await?);
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

impl Options {
    fn request(&self, command: Command<Bytes>, token: Option<FencingToken>) -> Request {
        let mut request = Request::new(command).persist(self.persist);
        if let Some(timeout) = self.timeout {
            request = request.timeout(timeout);
        }
        match token {
            Some(token) => request.fencing_token(token),
            None => request,
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
pub struct Set<R> {
    store: StateStore,
    key: Bytes,
    value: Bytes,
    condition: Condition<Bytes>,
    expiry: Option<Expiry>,
    options: Options,
    read: Read<R>,
}

impl Set<Version> {
    pub(crate) fn new(store: &StateStore, key: Bytes, value: Bytes) -> Self {
        let (condition, options) = (Condition::Always, Options::default());
        Self { store: store.clone(), key, value, condition, expiry: None, options, read: version }
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
    pub fn if_absent_or_equal_to(self, other: Operand<Bytes>) -> Set<Option<Version>> {
        self.on(Condition::IfAbsentOrEqualTo(other))
    }

    fn on(self, condition: Condition<Bytes>) -> Set<Option<Version>> {
        let Self { store, key, value, expiry, options, .. } = self;
        Set { store, key, value, condition, expiry, options, read: applied }
    }
}

impl<R> Set<R> {
    /// Lets the value expire after this time, rounded up to whole milliseconds, counted by the store from the moment it
    /// applies the write. Zero is never.
    pub fn expires_after(mut self, duration: Duration) -> Self {
        self.expiry = Expiry::after(duration);
        self
    }

    /// Carries a fencing token: the store refuses the write when a newer holder of the lock has written the key.
    pub fn fencing_token(mut self, token: FencingToken) -> Self {
        self.options.fencing_token = Some(token);
        self
    }

    pub(crate) fn guarded_by(mut self, fence: Fence) -> Self {
        self.options.fence = Some(fence);
        self
    }

    /// Asks the store to keep the key on disk. No reply tells whether it does.
    pub const fn persist(mut self) -> Self {
        self.options.persist = true;
        self
    }

    /// How long this request may take.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }
}

impl<R: Send + 'static> IntoFuture for Set<R> {
    type Output = Result<R, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { store, key, value, condition, expiry, options, read } = self;
        let command = Command::Set { key, value, condition, expiry };
        Call { store, command, options, read }.into_future()
    }
}

fn version(outcome: Outcome) -> Result<Version, Error> {
    match outcome {
        Outcome::Replied { reply: Reply::Done, version: Some(version), .. } => Ok(version),
        other => Err(Error::of(other)),
    }
}

fn applied(outcome: Outcome) -> Result<Option<Version>, Error> {
    match outcome {
        Outcome::Replied { reply: Reply::NotApplied, .. } => Ok(None),
        other => version(other).map(Some),
    }
}

pub(crate) fn found(outcome: Outcome) -> Result<Option<Found>, Error> {
    match outcome {
        Outcome::Replied { reply: Reply::Value(value), version, .. } => {
            Ok(Some(Found { value, version }))
        }
        Outcome::Replied { reply: Reply::Absent, .. } => Ok(None),
        other => Err(Error::of(other)),
    }
}

pub(crate) fn removal(outcome: Outcome) -> Result<Removal, Error> {
    match outcome {
        Outcome::Replied { reply: Reply::Removed, .. } => Ok(Removal::Removed),
        Outcome::Replied { reply: Reply::NothingRemoved, .. } => Ok(Removal::Absent),
        Outcome::Replied { reply: Reply::NotApplied, .. } => Ok(Removal::Different),
        other => Err(Error::of(other)),
    }
}

pub(crate) fn was_removed(outcome: Outcome) -> Result<bool, Error> {
    removal(outcome).map(|removal| removal == Removal::Removed)
}
