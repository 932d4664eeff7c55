//! What a store is told at the start, and who its requesters are.

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use crate::hlc::{NodeId, NodeIdRef};
use crate::limits::{CLOCK_DRIFT_MAX, StoreLimits};
use crate::message::{Dialect, Incarnation, WordCase};
use crate::mqtt::Incoming;
use crate::topic::ResponseTopic;

/// Who sent a request, and how far that is to be trusted.
///
/// A broker that hosts the store knows its clients. A store that is an ordinary MQTT client knows only what a request
/// says of itself; whoever may publish requests may then speak in another's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal<'a> {
    client_id: Option<&'a str>,
    verified: bool,
}

impl<'a> Principal<'a> {
    /// A client id that the broker authenticated.
    #[must_use]
    pub const fn verified(client_id: &'a str) -> Self {
        Self { client_id: Some(client_id), verified: true }
    }

    /// What the request claims: `__srcId`, or else the client id in a response topic of the recommended form.
    #[must_use]
    pub fn claimed(incoming: &Incoming<'a>) -> Self {
        let from_topic = || Some(ResponseTopic::parse(incoming.response_topic?)?.client_id());
        let client_id = incoming.claimed_source().filter(|id| !id.is_empty()).or_else(from_topic);
        Self { client_id, verified: false }
    }

    /// The [verified sender](Incoming::verified_sender), or else what the request [claims](Self::claimed).
    #[must_use]
    pub fn of(incoming: &Incoming<'a>) -> Self {
        incoming.verified_sender.map_or_else(|| Self::claimed(incoming), Self::verified)
    }

    /// The MQTT client id, if any is known.
    #[must_use]
    pub const fn client_id(&self) -> Option<&'a str> {
        self.client_id
    }

    /// Whether a broker vouches for the client id.
    #[must_use]
    pub const fn is_verified(&self) -> bool {
        self.verified
    }

    /// One that was known before.
    pub(super) const fn noted(client_id: Option<&'a str>, verified: bool) -> Self {
        Self { client_id, verified }
    }

    /// Whether a verified sender claims to be somebody else.
    pub(super) fn is_contradicted_by(&self, incoming: &Incoming<'_>) -> bool {
        self.verified
            && incoming.claimed_source().is_some()
            && incoming.claimed_source() != self.client_id
    }
}

/// What a request wants of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// GET, KEYNOTIFY, and SCAN for each key that it lists.
    Read,
    /// SET, DEL and VDEL.
    Write,
    /// The same with a fencing token (`__ft`). It is asked about after [`Write`](Self::Write), if that is allowed: a SET with
    /// a token shuts out whoever has none, or a lower one, until the key is deleted.
    Fence,
}

/// The embedder's policy: whether this requester may do that with this key. It must depend on nothing else, or equal
/// calls would not give equal outputs.
pub type Authorizer = Box<dyn Fn(&Principal<'_>, Access, &[u8]) -> bool + Send + Sync>;

/// Which dialect a store answers in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialectPolicy {
    /// Each requester's own: the deployed forms for requests with `__protVer`, the page's for those without.
    #[default]
    Auto,
    /// Always this one.
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

/// Which writes are handed out as records and hold their answers back until they are persisted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// None.
    #[default]
    None,
    /// Those that touch a key whose stored or new value was set with `aio-persistence`, or that is one of the [durable
    /// keys](StoreConfig::durable_keys). Any other value is gone after a crash, and its fence with it.
    Requested,
    /// All.
    All,
}

/// Which keys are kept whether or not their requester asks. It must depend on nothing but the key.
pub type KeySelector = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Configuration of a [`Store`](super::Store).
pub struct StoreConfig {
    pub(super) node_id: NodeId,
    pub(super) limits: StoreLimits,
    pub(super) clock_drift_max: Duration,
    pub(super) dialect: DialectPolicy,
    pub(super) word_case: WordCase,
    pub(super) durability: Durability,
    pub(super) durable_keys: Option<KeySelector>,
    pub(super) durable_watches: bool,
    pub(super) linearizable_reads: bool,
    pub(super) hash_seed: u64,
    pub(super) incarnation: Option<Incarnation>,
    pub(super) authorizer: Option<Authorizer>,
    pub(super) scan_secret: Option<[u8; 16]>,
    pub(super) explain: bool,
}

impl StoreConfig {
    /// The default configuration: node id `StateStore`, [`StoreLimits::default`], each requester's dialect, verbs in any
    /// case, nothing durable, no authorizer, no incarnation.
    ///
    /// `hash_seed` seeds the table's hash function. A store that strangers can reach should draw it at random, or they
    /// can choose keys that collide; a simulation passes a constant. No output depends on it but tokens of SCAN, where no
    /// [`scan_secret`](Self::scan_secret) is given.
    #[must_use]
    pub fn new(hash_seed: u64) -> Self {
        Self {
            node_id: NodeIdRef::STATE_STORE.into(),
            limits: StoreLimits::default(),
            clock_drift_max: CLOCK_DRIFT_MAX,
            dialect: DialectPolicy::Auto,
            word_case: WordCase::Any,
            durability: Durability::None,
            durable_keys: None,
            durable_watches: false,
            linearizable_reads: false,
            hash_seed,
            incarnation: None,
            authorizer: None,
            scan_secret: None,
            explain: false,
        }
    }

    /// Issues versions under another node id.
    #[must_use]
    pub fn node_id(mut self, node_id: NodeId) -> Self {
        self.node_id = node_id;
        self
    }

    /// Other limits.
    #[must_use]
    pub const fn limits(mut self, limits: StoreLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How far a `__ts` or `__ft` may be ahead of the store's wall clock: [`CLOCK_DRIFT_MAX`] by default, as the protocol has
    /// it, and never more. What is further ahead is refused as it is there.
    ///
    /// It bounds how far one client can set the versions of all keys ahead of the clock, and a fence ahead of the tokens of
    /// others. A client whose own clock is further ahead cannot write until that is set.
    #[must_use]
    pub fn clock_drift_max(mut self, drift: Duration) -> Self {
        self.clock_drift_max = drift.min(CLOCK_DRIFT_MAX);
        self
    }

    /// Whether the reply to a refused request says why, in the user property
    /// [`REASON`](crate::message::property::REASON); without it the error is all that it says, as the protocol has it. The text
    /// is that of [`Store::explanation`](super::Store::explanation), no longer than
    /// [`REASON_BYTES_MAX`](crate::message::property::REASON_BYTES_MAX) and without keys and values. Whoever may write a key learns from it which
    /// token fences that, and which limit is reached.
    ///
    /// A refusal that is repeated from the cache of answers goes without: only the answer is kept. So does one that would not
    /// fit, with its reason, into the largest packet that the requester takes.
    #[must_use]
    pub const fn explain(mut self, explain: bool) -> Self {
        self.explain = explain;
        self
    }

    /// Which dialect to answer in.
    #[must_use]
    pub const fn dialect(mut self, dialect: DialectPolicy) -> Self {
        self.dialect = dialect;
        self
    }

    /// Whether verbs and options may be written in lower case.
    #[must_use]
    pub const fn word_case(mut self, word_case: WordCase) -> Self {
        self.word_case = word_case;
        self
    }

    /// Which writes are handed out as records.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Keys that are kept with [`Durability::Requested`] as though each SET of them had asked for that.
    ///
    /// ```
    /// use statestore_proto::store::{Durability, StoreConfig};
    ///
    /// let config = StoreConfig::new(7)
    ///     .durability(Durability::Requested)
    ///     .durable_keys(Box::new(|key| key.starts_with(b"settings/")));
    /// # let _ = config;
    /// ```
    #[must_use]
    pub fn durable_keys(mut self, is_durable: KeySelector) -> Self {
        self.durable_keys = Some(is_durable);
        self
    }

    /// Whether registrations for notifications are recorded too, where anything is durable: for a store that is an ordinary client of a
    /// broker, whose clients and their sessions outlive it and do not register again. In a broker of its own they come
    /// anew, and so do their registrations.
    #[must_use]
    pub const fn durable_watches(mut self, are_durable: bool) -> Self {
        self.durable_watches = are_durable;
        self
    }

    /// Whether reads wait for a batch too, where anything is durable: for a store that another may have replaced without its
    /// knowing, and that learns of it when it persists.
    ///
    /// Whatever tells of what is stored, a GET as well as a refusal, is then held until a batch is
    /// [persisted](super::Store::handle_persisted) that was handed out after the request. Where nothing was written meanwhile,
    /// [`poll_records`](super::Store::poll_records) hands out one without records, once for all that waits. Who persists it
    /// must find out thereby that no other store has taken over, or the wait is for nothing.
    ///
    /// A store whose records nobody else writes needs none of this: what it holds is the truth.
    #[must_use]
    pub const fn linearizable_reads(mut self, are_linearizable: bool) -> Self {
        self.linearizable_reads = are_linearizable;
        self
    }

    /// Sets the [`Incarnation`] that this store reports to clients that ask, so that they notice when it was replaced.
    ///
    /// Draw it anew for each store that begins without registrations, at random: one that was seen before hides what was
    /// forgotten. It is told to whoever asks, so it must say nothing of the hash seed.
    #[must_use]
    pub const fn incarnation(mut self, number: u64) -> Self {
        self.incarnation = Some(Incarnation::new(number));
        self
    }

    /// Whether any write holds its answer back until it is persisted.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.durability != Durability::None
    }

    /// Whether what tells of what is stored waits for a batch.
    pub(super) fn holds_reads(&self) -> bool {
        self.linearizable_reads && self.is_durable()
    }

    /// Whether registrations are recorded.
    pub(super) fn keeps_watches(&self) -> bool {
        self.durable_watches && self.is_durable()
    }

    /// Whether a value is to be kept whose SET did or did not ask for that.
    pub(super) fn is_kept(&self, key: &[u8], asked: bool) -> bool {
        let selected = || self.durable_keys.as_ref().is_some_and(|is_durable| is_durable(key));
        asked || (self.durability == Durability::Requested && selected())
    }

    /// Whether it was given an incarnation.
    #[must_use]
    pub const fn has_incarnation(&self) -> bool {
        self.incarnation.is_some()
    }

    /// The secret that is used.
    pub(super) fn effective_scan_secret(&self) -> [u8; 16] {
        let own = if self.authorizer.is_some() { self.hash_seed } else { 0 };
        self.scan_secret.unwrap_or_else(|| u128::from(own).to_le_bytes())
    }

    /// Asks `authorizer` about every request, and about every key before it is listed.
    ///
    /// Give such a store a [`scan_secret`](Self::scan_secret) that the next one after a restart has too.
    #[must_use]
    pub fn authorizer(mut self, authorizer: Authorizer) -> Self {
        self.authorizer = Some(authorizer);
        self
    }

    /// Sets the secret with which the tokens of SCAN are enciphered, since they name the key that comes next, also to who may
    /// not read it. All that a token tells without the secret is how long that key is.
    ///
    /// Tokens that another store made with the same secret are read, and all others refused. Without one given, a store
    /// with an authorizer takes the hash seed; one without has no keys to hide, and none but a fixed secret.
    ///
    /// ```
    /// use statestore_proto::store::{Access, StoreConfig};
    ///
    /// let secret = *b"drawn once, kept"; // at random, and with the data
    /// let config = StoreConfig::new(7)
    ///     .authorizer(Box::new(|_, access, key| access == Access::Read && !key.starts_with(b"private/")))
    ///     .scan_secret(secret);
    /// # let _ = config;
    /// ```
    #[must_use]
    pub const fn scan_secret(mut self, secret: [u8; 16]) -> Self {
        self.scan_secret = Some(secret);
        self
    }
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConfig")
            .field("node_id", &self.node_id)
            .field("limits", &self.limits)
            .field("clock_drift_max", &self.clock_drift_max)
            .field("dialect", &self.dialect)
            .field("word_case", &self.word_case)
            .field("durability", &self.durability)
            .field("durable_keys", &self.durable_keys.is_some())
            .field("durable_watches", &self.durable_watches)
            .field("linearizable_reads", &self.linearizable_reads)
            .field("incarnation", &self.incarnation)
            .field("authorizer", &self.authorizer.is_some())
            .field("explain", &self.explain)
            .finish_non_exhaustive()
    }
}
