//! Configuration of a store.

use alloc::boxed::Box;
use core::fmt;
use core::ops::Deref;
use core::time::Duration;

use super::{Access, Authorizer, Principal};
use crate::debug::show;
use crate::hlc::{ClockDriftError, NodeId, NodeIdRef};
use crate::limits::{CLOCK_DRIFT_MAX, StoreLimits};
use crate::message::{Dialect, Expiry, Incarnation, WordCase};

/// The dialect of a store's replies and notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialectPolicy {
    /// The dialect of each requester: the deployed forms for requests with `__protVer`, the forms
    /// of the public specification for requests without.
    #[default]
    Auto,
    /// Always this dialect.
    Pinned(Dialect),
}

impl DialectPolicy {
    pub(super) const fn of_request(self, has_protocol_version: bool) -> Dialect {
        match self {
            Self::Auto => Dialect::of_request(has_protocol_version),
            Self::Pinned(dialect) => dialect,
        }
    }
}

/// The writes that get records, and whose responses wait until the records are persisted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// No writes.
    #[default]
    None,
    /// Writes to a key whose stored or new value was set with `aio-persistence`, or that is one of
    /// the [durable keys](StoreConfig::durable_keys). Other values, and their fences, are lost in a
    /// crash.
    Requested,
    /// All writes.
    All,
}

/// Returns whether a key is durable even if its SET does not ask for it. The result must depend on
/// the key alone.
pub type KeyPredicate = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Returns the expiry of a value from its key and the expiry that its SET asks for. The result must
/// depend on these alone.
pub type ExpiryPolicy = Box<dyn Fn(&[u8], Option<Expiry>) -> Option<Expiry> + Send + Sync>;

/// Configuration of a [`Store`](super::Store). Dereferences to its [`StoreSettings`].
pub struct StoreConfig {
    pub(super) settings: StoreSettings,
    pub(super) hash_seed: u64,
    /// The [authorizer](Self::authorizer). Without a [`scan_secret`](Self::scan_secret) the secret in
    /// use depends on whether there is one.
    pub authorizer: Option<Authorizer>,
    /// The predicate of [durable keys](Self::durable_keys).
    pub durable_keys: Option<KeyPredicate>,
    /// The [policy of expiries](Self::expiry_policy).
    pub expiry_policy: Option<ExpiryPolicy>,
    scan_secret: Option<[u8; 16]>,
}

/// The settings of a [`StoreConfig`], except its callbacks and its secrets. Each one is documented
/// at the method of this name.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "see the methods of `StoreConfig`")]
pub struct StoreSettings {
    pub node_id: NodeId,
    pub limits: StoreLimits,
    pub clock_drift_max: Duration,
    pub dialect: DialectPolicy,
    pub word_case: WordCase,
    pub durability: Durability,
    pub durable_registrations: bool,
    pub linearizable_reads: bool,
    pub incarnation: Option<Incarnation>,
    pub explain: bool,
}

impl Deref for StoreConfig {
    type Target = StoreSettings;

    fn deref(&self) -> &StoreSettings {
        &self.settings
    }
}

impl StoreConfig {
    /// The default configuration: node id `StateStore`, [`StoreLimits::default`], the dialect of
    /// each requester, verbs in any case, nothing durable, no authorizer, no incarnation.
    ///
    /// `hash_seed` seeds the hash functions of the store. Draw it at random if untrusted clients
    /// can reach the store, or they can choose keys that collide; a simulation passes a constant.
    /// No output depends on it except SCAN tokens, if no [`scan_secret`](Self::scan_secret) is
    /// given.
    #[must_use]
    pub fn new(hash_seed: u64) -> Self {
        let settings = StoreSettings {
            node_id: NodeIdRef::STATE_STORE.into(),
            limits: StoreLimits::default(),
            clock_drift_max: CLOCK_DRIFT_MAX,
            dialect: DialectPolicy::Auto,
            word_case: WordCase::Any,
            durability: Durability::None,
            durable_registrations: false,
            linearizable_reads: false,
            incarnation: None,
            explain: false,
        };
        let (authorizer, durable_keys, expiry_policy, scan_secret) = (None, None, None, None);
        Self { settings, hash_seed, authorizer, durable_keys, expiry_policy, scan_secret }
    }

    /// Sets the node id under which the store issues versions.
    #[must_use]
    pub fn node_id(mut self, node_id: NodeId) -> Self {
        self.settings.node_id = node_id;
        self
    }

    /// Sets the limits of all tables and queues.
    #[must_use]
    pub const fn limits(mut self, limits: StoreLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets the greatest lead of a `__ts` or `__ft` over the store's wall clock, at most
    /// [`CLOCK_DRIFT_MAX`], the default. Requests further ahead are refused.
    ///
    /// The bound limits how far one client can move the versions of all keys ahead of the wall
    /// clock, and a fence ahead of the tokens of other clients. A client whose clock is further
    /// ahead cannot write until its clock is corrected.
    ///
    /// # Errors
    /// [`ClockDriftError`] for more than [`CLOCK_DRIFT_MAX`].
    pub fn clock_drift_max(mut self, drift: Duration) -> Result<Self, ClockDriftError> {
        if drift > CLOCK_DRIFT_MAX {
            return Err(ClockDriftError { ahead: drift, allowed: CLOCK_DRIFT_MAX });
        }
        self.settings.clock_drift_max = drift;
        Ok(self)
    }

    /// Sets whether the reply to a refused request carries the text of its
    /// [`Refused`](super::Refused) in the user property
    /// [`REASON`](crate::message::property::REASON).
    ///
    /// The text is at most [`REASON_BYTES_MAX`](crate::message::property::REASON_BYTES_MAX) bytes
    /// long and contains no keys and no values. A client that may write a key learns its fence and
    /// which limit was exceeded. The text is missing from the response to a duplicate, since only
    /// the response itself is cached, and from a reply that would exceed the largest packet that
    /// the requester accepts.
    #[must_use]
    pub const fn explain(mut self, explain: bool) -> Self {
        self.settings.explain = explain;
        self
    }

    /// Sets the policy of expiries, for example defaults and maxima by key: clients that write
    /// without an expiry, and cannot be changed, then leave no keys forever.
    ///
    /// It applies to values that are set from then on. A lease, which is a SET with a condition and
    /// an expiry, keeps its expiry: the holder of a lock relies on it.
    ///
    /// ```
    /// use core::time::Duration;
    /// use statestore_proto::message::Expiry;
    /// use statestore_proto::store::StoreConfig;
    ///
    /// let default = Expiry::after(Duration::from_secs(600));
    /// let config = StoreConfig::new(7).expiry_policy(move |key, requested| {
    ///     requested.or(if key.starts_with(b"sensors/") { default } else { None })
    /// });
    /// # let _ = config;
    /// ```
    #[must_use]
    pub fn expiry_policy(
        mut self,
        policy: impl Fn(&[u8], Option<Expiry>) -> Option<Expiry> + Send + Sync + 'static,
    ) -> Self {
        self.expiry_policy = Some(Box::new(policy));
        self
    }

    /// Sets the dialect of replies and notifications.
    #[must_use]
    pub const fn dialect(mut self, dialect: DialectPolicy) -> Self {
        self.settings.dialect = dialect;
        self
    }

    /// Sets the case in which verbs and options of requests are accepted.
    #[must_use]
    pub const fn word_case(mut self, word_case: WordCase) -> Self {
        self.settings.word_case = word_case;
        self
    }

    /// Sets the writes that get records.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }

    /// Sets the keys that are durable with [`Durability::Requested`] even if their SET does not ask
    /// for it.
    ///
    /// ```
    /// use statestore_proto::store::{Durability, StoreConfig};
    ///
    /// let config = StoreConfig::new(7)
    ///     .durability(Durability::Requested)
    ///     .durable_keys(|key| key.starts_with(b"settings/"));
    /// # let _ = config;
    /// ```
    #[must_use]
    pub fn durable_keys(
        mut self,
        is_durable: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.durable_keys = Some(Box::new(is_durable));
        self
    }

    /// Sets whether registrations get records too, if anything is durable.
    ///
    /// A store that is a client of an external broker needs this: its clients and their sessions
    /// outlive it and do not register again. The clients of an embedded broker reconnect after a
    /// restart and register again.
    #[must_use]
    pub const fn durable_registrations(mut self, are_durable: bool) -> Self {
        self.settings.durable_registrations = are_durable;
        self
    }

    /// Sets whether reads wait for a batch of records too, if anything is durable.
    ///
    /// A store needs this if another store may replace it while it is paused, which it notices only
    /// when it persists. Every response that depends on stored data then waits until a batch is
    /// [persisted](super::Store::handle_persisted) that was handed out after the request. If
    /// nothing was written since, [`poll_records`](super::Store::poll_records) hands out one batch
    /// without records for all waiting responses. The journal must verify, when it persists that
    /// batch, that no other store has taken over.
    ///
    /// A store that is the only writer of its records does not need this: its memory is
    /// authoritative.
    #[must_use]
    pub const fn linearizable_reads(mut self, are_linearizable: bool) -> Self {
        self.settings.linearizable_reads = are_linearizable;
        self
    }

    /// Sets the [`Incarnation`] that the store reports to clients that ask for it.
    ///
    /// Draw a random number for each store that begins without registrations. Reusing a number
    /// would hide the loss of state from clients. Clients can read the number, so it must not
    /// depend on the hash seed.
    #[must_use]
    pub const fn incarnation(mut self, number: u64) -> Self {
        self.settings.incarnation = Some(Incarnation::new(number));
        self
    }

    /// Sets the policy that allows or denies each request, and each key that SCAN lists.
    ///
    /// Give such a store a [`scan_secret`](Self::scan_secret) that stays the same after a restart.
    #[must_use]
    pub fn authorizer(
        mut self,
        authorizer: impl Fn(&Principal<'_>, Access, &[u8]) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.authorizer = Some(Box::new(authorizer));
        self
    }

    /// Sets the secret that encrypts SCAN tokens. A token contains the next key, which its reader
    /// may not be allowed to read; without the secret it reveals only the length of that key.
    ///
    /// A store accepts the tokens of any store with the same secret and refuses others. By default
    /// a store with an authorizer uses the hash seed, and a store without one, where all keys are
    /// public, uses a constant.
    ///
    /// ```
    /// use statestore_proto::store::{Access, StoreConfig};
    ///
    /// let secret = *b"16 random bytes!"; // drawn once and stored with the data
    /// let config = StoreConfig::new(7)
    ///     .authorizer(|_, access, key| access == Access::Read && !key.starts_with(b"private/"))
    ///     .scan_secret(secret);
    /// # let _ = config;
    /// ```
    #[must_use]
    pub const fn scan_secret(mut self, secret: [u8; 16]) -> Self {
        self.scan_secret = Some(secret);
        self
    }

    /// Returns whether any write waits until its records are persisted.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durability != Durability::None
    }

    /// Returns whether reads wait for a batch.
    pub(super) fn holds_reads(&self) -> bool {
        self.linearizable_reads && self.is_durable()
    }

    /// Returns whether registrations get records.
    pub(super) fn records_registrations(&self) -> bool {
        self.durable_registrations && self.is_durable()
    }

    /// Returns whether a value persists; `requested` is what its SET asks for.
    pub(super) fn persists(&self, key: &[u8], requested: bool) -> bool {
        let is_selected = || self.durable_keys.as_ref().is_some_and(|is_durable| is_durable(key));
        requested || (self.durability == Durability::Requested && is_selected())
    }

    /// The expiry of a value; `requested` is that of its SET, which is not a lease.
    pub(super) fn expiry_of(&self, key: &[u8], requested: Option<Expiry>) -> Option<Expiry> {
        match &self.expiry_policy {
            Some(policy) => policy(key, requested),
            None => requested,
        }
    }

    /// Returns whether a SET gets a record with its value; `requested` is what it asks for.
    pub(super) fn records_put(&self, key: &[u8], requested: bool) -> bool {
        match self.durability {
            Durability::None => false,
            Durability::Requested => self.persists(key, requested),
            Durability::All => true,
        }
    }

    /// The [secret of SCAN tokens](Self::scan_secret) that is in use.
    #[must_use]
    pub fn effective_scan_secret(&self) -> [u8; 16] {
        let default = if self.authorizer.is_some() { self.hash_seed } else { 0 };
        self.scan_secret.unwrap_or_else(|| u128::from(default).to_le_bytes())
    }
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show!(f, StoreConfig {
            settings = self.settings,
            authorizer = self.authorizer.is_some(),
            durable_keys = self.durable_keys.is_some(),
            expiry_policy = self.expiry_policy.is_some(),
        })
    }
}
