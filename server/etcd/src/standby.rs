//! A standby: reads all records, follows the leader's writes by a watch, and detects when no store
//! leads.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, Event, EventType, KeyValue, Txn, TxnOp, WatchResponse, WatchStream,
};
use statestore_proto::hlc::Version;
use statestore_proto::store::Record;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::client::Etcd;
use crate::entry::{self, Entry, FORMAT, LeaderKey};
use crate::error::Failure;
use crate::foreign_keys::ForeignKeys;
use crate::head::Head;
use crate::keys::{Keys, Name};
use crate::known_head::KnownHead;
use crate::options::Options;
use crate::presence::Presence;
use crate::reader::{Contents, Reader};
use crate::response_log::ResponseLog;
use crate::role::{Leader, Role, RoleSender};
use crate::skew::{self, Skew};
use crate::wall_clock;

/// Interval at which a standby reads the head and the leader, to detect a stalled watch.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// A watch is restarted if it reports nothing for this time although the head has changed.
const STALLED: Duration = Duration::from_secs(5);

/// Pause before the next attempt while etcd cannot be reached.
const PAUSE: Duration = Duration::from_millis(500);

/// A standby with clock skew delays its candidacy by the lease times this.
const CANDIDACY_DELAY: u32 = 2;

/// Kinds of warnings: the indexes of [`Standby::warned`].
const ETCD: usize = 0;
const CLOCK: usize = 1;

/// State that a standby waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal<'a> {
    /// No store leads, and this one may.
    NoLeader,
    /// All records up to this head are returned.
    Head(&'a Head),
}

/// Result of waiting for a [`Goal`].
#[derive(Debug)]
pub(crate) enum Step {
    Records(Vec<Record>),
    /// The goal is reached, and all records before it are returned.
    Reached,
}

/// Follows the leader of a store.
pub(crate) struct Standby {
    etcd: Etcd,
    keys: Keys,
    role: RoleSender,
    known: KnownHead,
    presence: Presence,
    lease: Duration,
    reader: Option<Reader>,
    watch: Option<WatchStream>,
    /// The watch has skipped changes.
    is_incomplete: bool,
    /// First revision of the next watch.
    next_revision: i64,
    /// Keys of the entries and registrations that were returned and not removed.
    names: BTreeSet<Box<[u8]>>,
    response_log: ResponseLog,
    head: Head,
    leader: Option<Leader>,
    /// Time at which the leader was seen to disappear.
    leaderless_since: Instant,
    lag: u64,
    skew: Skew,
    last_poll: Instant,
    last_message: Instant,
    /// Durations of the last two polls.
    round_trips: [Duration; 2],
    /// Current warnings about etcd and about the clock, which are logged once.
    warned: [Option<String>; 2],
    foreign_keys: ForeignKeys,
    /// Revision and key of a change for which no change of the head was seen yet.
    unmatched_change: Option<(i64, Box<[u8]>)>,
}

impl Standby {
    /// Checks the layout and the head. Writes both if the prefix is empty.
    ///
    /// # Errors
    /// [`Failure`], also if etcd cannot be reached: at the first contact the address is probably
    /// wrong.
    pub(crate) async fn open(
        options: &Options,
        keys: &Keys,
        role: RoleSender,
        known: KnownHead,
    ) -> Result<Self, Failure> {
        let etcd = Etcd::new(options)?;
        let wanted = [keys.format(), keys.head()];
        let mut found = etcd.find(&wanted).await;
        // Each member gets one attempt.
        for _ in 1..etcd.members() {
            if found.as_ref().is_err_and(Failure::is_transient) {
                found = etcd.find(&wanted).await;
            }
        }
        let mut found = found?;
        if found.entries.first().is_none_or(Option::is_none) {
            if let Some(known) = known.contradicts(None) {
                return Err(Failure::went_back(keys, &known, None));
            }
            // If another store has just created the layout, the prefix is not empty any more.
            if !etcd.has_keys(keys.range()).await? {
                create(&etcd, keys).await?;
            }
            found = etcd.find(&wanted).await?;
        }
        let (format, head) = match &found.entries[..] {
            [Some(format), Some(head)] => (format, head),
            // Another program has removed one of the two.
            [None, Some(_)] => return Err(Failure::damaged(&keys.format())),
            [Some(_), None] => return Err(Failure::damaged(&keys.head())),
            _ => return Err(Failure::Foreign(keys.prefix())),
        };
        entry::check_format(keys, format.value())?;
        let head = Head::decode(head.value()).ok_or_else(|| Failure::damaged(head.key()))?;
        if let Some(known) = known.contradicts(Some(&head)) {
            return Err(Failure::went_back(keys, &known, Some(&head)));
        }
        known.observe(&head);
        let now = Instant::now();
        Ok(Self {
            reader: Some(Reader::new(keys, found.revision)),
            etcd,
            keys: keys.clone(),
            role,
            known,
            presence: Presence::new(options),
            lease: options.lease,
            watch: None,
            is_incomplete: false,
            next_revision: 0,
            names: BTreeSet::new(),
            response_log: ResponseLog::default(),
            head,
            leader: None,
            leaderless_since: now,
            lag: 0,
            skew: Skew::default(),
            last_poll: now,
            last_message: now,
            round_trips: [Duration::ZERO; 2],
            warned: [None, None],
            foreign_keys: ForeignKeys::default(),
            unmatched_change: None,
        })
    }

    pub(crate) const fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// Removes the published status, and returns the log of responses.
    pub(crate) fn into_response_log(self) -> ResponseLog {
        // In the background: if this fails, the status expires.
        tokio::spawn(self.presence.withdraw(self.etcd));
        self.response_log
    }

    /// Returns the next records, or [`Step::Reached`] at the goal. While etcd cannot be reached,
    /// logs a warning and waits.
    ///
    /// # Errors
    /// [`Failure`] that is not transient.
    pub(crate) async fn next(&mut self, goal: Goal<'_>) -> Result<Step, Failure> {
        loop {
            match self.step(goal).await {
                Ok(Some(step)) => return Ok(step),
                Ok(None) => {}
                Err(Failure::Compacted) => {
                    info!("etcd has compacted unread changes; reading everything again");
                    self.watch = None;
                    self.reader = None;
                    while let Err(failure) = self.read_again().await {
                        self.pause(failure).await?;
                    }
                }
                Err(failure) => self.pause(failure).await?,
            }
        }
    }

    async fn step(&mut self, goal: Goal<'_>) -> Result<Option<Step>, Failure> {
        if std::mem::take(&mut self.is_incomplete) {
            return Err(Failure::Compacted);
        }
        if let Some(reader) = &mut self.reader {
            if let Some(records) =
                reader.next(&self.etcd, &self.keys, &mut self.foreign_keys).await?
            {
                return Ok(Some(Step::Records(records)));
            }
            let contents = self.reader.take().map(Reader::into_contents).unwrap_or_default();
            let removed = self.apply_contents(contents)?;
            return Ok((!removed.is_empty()).then_some(Step::Records(removed)));
        }
        if self.watch.is_none() {
            self.watch = Some(self.etcd.watch(&self.keys, self.next_revision).await?);
            self.last_message = Instant::now();
        }
        let is_reached = match goal {
            Goal::Head(head) => self.head.sequence >= head.sequence,
            Goal::NoLeader => self.leader.is_none() && self.may_lead(),
        };
        if is_reached {
            return Ok(Some(Step::Reached));
        }
        let Some(watch) = self.watch.as_mut() else { return Ok(None) };
        let message = tokio::select! {
            message = watch.message() => message,
            () = tokio::time::sleep_until(self.last_poll + POLL_EVERY) => {
                self.last_poll = Instant::now();
                self.poll().await?;
                return Ok(None);
            }
        };
        let message = message.map_err(|error| self.etcd.failure(&error))?;
        let Some(message) = message else {
            return Err(Failure::Other("the watch has ended".to_owned()));
        };
        let records = self.apply_message(&message)?;
        Ok((!records.is_empty()).then_some(Step::Records(records)))
    }

    /// Backs off after a transient failure; returns any other one.
    async fn pause(&mut self, failure: Failure) -> Result<(), Failure> {
        if !failure.is_transient() {
            return Err(failure);
        }
        self.watch = None;
        self.back_off(&failure).await;
        Ok(())
    }

    /// Logs a failure once, and pauses.
    pub(crate) async fn back_off(&mut self, failure: &Failure) {
        self.warn(ETCD, Some(failure.to_string()));
        tokio::time::sleep(PAUSE).await;
    }

    /// Logs `reason` as a warning of this kind, unless it is the current one. `None` ends the
    /// warning.
    fn warn(&mut self, kind: usize, reason: Option<String>) {
        let current = &mut self.warned[kind];
        if let Some(reason) = reason.as_ref().filter(|reason| current.as_ref() != Some(reason)) {
            warn!(%reason, "standby delayed");
        }
        *current = reason;
    }

    fn publish_role(&self) {
        self.role.set(Role::Standby { leader: self.leader.clone(), lag: self.lag });
    }

    /// Applies the value of the leader key, if it exists.
    fn apply_leader(&mut self, kv: Option<&KeyValue>) {
        let leader = kv.map(|kv| (kv.key(), entry::decode_leader_key(kv)));
        let leader = match leader {
            Some((_, LeaderKey::Store(leader))) => Some(leader),
            Some((key, LeaderKey::Unleased)) => {
                self.foreign_keys.warn_once(
                    key,
                    "leader key without a lease ignored: no store has written it; the next leader \
                     replaces it",
                );
                None
            }
            Some((key, LeaderKey::Foreign(lease))) => {
                let warning = format!(
                    "no store can lead: another program has written the leader key; revoke its \
                     lease (etcdctl lease revoke {lease:x})"
                );
                self.foreign_keys.warn_once(key, &warning);
                Some(Leader::foreign())
            }
            None => None,
        };
        self.set_leader(leader);
    }

    fn set_leader(&mut self, leader: Option<Leader>) {
        if leader.is_none() && self.leader.is_some() {
            self.leaderless_since = Instant::now();
        }
        self.leader = leader;
        self.publish_role();
    }

    /// Returns whether this store may campaign: its clock has no skew, or other standbys have had
    /// enough time to campaign first.
    fn may_lead(&mut self) -> bool {
        let clock = self.head.clock.as_ref().map(|clock| clock.hlc().wall());
        if clock.is_some_and(|clock| skew::is_too_far_behind(wall_clock::now(), clock)) {
            let reason = "the local clock is more than a minute behind the store's clock, so this \
                          store will not lead: it would refuse every SET; set the clock";
            self.warn(CLOCK, Some(reason.to_owned()));
            return false;
        }
        let excess = self.excess();
        self.warn_about_skew();
        excess.is_none() || self.leaderless_since.elapsed() > self.lease * CANDIDACY_DELAY
    }

    fn excess(&self) -> Option<i64> {
        self.skew.excess(self.round_trips[0].max(self.round_trips[1]))
    }

    fn warn_about_skew(&mut self) {
        let excess = self.excess();
        let reason = excess.map(|excess| {
            let side = if excess > 0 { "ahead of" } else { "behind" };
            format!(
                "the local clock is more than a second {side} the leader's, so other standbys \
                 campaign first; set the clocks"
            )
        });
        self.warn(CLOCK, reason);
    }

    /// Begins to read all keys at the latest revision.
    async fn read_again(&mut self) -> Result<(), Failure> {
        let found = self.etcd.find(&[self.keys.head()]).await?;
        self.reader = Some(Reader::new(&self.keys, found.revision));
        Ok(())
    }

    /// Applies the result of a complete read. Returns records that remove the keys that do not
    /// exist any more.
    fn apply_contents(&mut self, contents: Contents) -> Result<Vec<Record>, Failure> {
        let Contents { revision, has_format, head, leader, response_log, names } = contents;
        let head = head.filter(|_| has_format);
        self.check_head(head.as_ref())?;
        let removed = self.names.difference(&names).map(|name| self.removal(name));
        let removed = removed.collect::<Result<Vec<_>, _>>()?;
        self.head = head.unwrap_or_else(|| self.head.clone());
        self.known.observe(&self.head);
        (self.names, self.response_log, self.next_revision) =
            (names, response_log, revision.saturating_add(1));
        self.apply_leader(leader.as_ref());
        Ok(removed.into_iter().flatten().collect())
    }

    /// Checks that a head is not earlier than the last one.
    fn check_head(&self, found: Option<&Head>) -> Result<(), Failure> {
        match found {
            Some(head) if head.position() >= self.head.position() => Ok(()),
            found => Err(Failure::went_back(&self.keys, &self.head, found)),
        }
    }

    /// Returns the record that removes an entry or a registration.
    fn removal(&self, name: &[u8]) -> Result<Option<Record>, Failure> {
        Ok(match self.keys.parse(name) {
            Some(Name::Value { key }) => {
                // The greatest issued version is not less than the version of the removal.
                let version: Option<Version> = self.head.clock.clone();
                let version = version.ok_or_else(|| Failure::damaged(&self.keys.head()))?;
                Some(Record::Removed { key: key.into(), version })
            }
            Some(Name::Watch { key, client }) => {
                Some(Record::Unregistered { client_id: client.into(), key: key.into() })
            }
            _ => None,
        })
    }

    /// Reads the leader and the head, and publishes the status of this standby.
    pub(crate) async fn poll(&mut self) -> Result<(), Failure> {
        let started = Instant::now();
        let found = self.etcd.find(&[self.keys.head(), self.keys.leader()]).await;
        self.round_trips = [started.elapsed(), self.round_trips[0]];
        let found = found?;
        let mut entries = found.entries.into_iter();
        let head = entries.next().flatten();
        let head =
            head.map(|head| Head::decode(head.value()).ok_or_else(|| Failure::damaged(head.key())));
        let head = head.transpose()?;
        self.check_head(head.as_ref())?;
        let sequence = head.map_or(0, |head| head.sequence);
        self.lag = sequence.saturating_sub(self.head.sequence);
        if self.lag > 0 && self.last_message.elapsed() > STALLED {
            self.watch = None;
        }
        let leader = entries.next().flatten();
        self.apply_leader(leader.as_ref());
        if self.leader.is_some() {
            self.warn_about_skew();
        }
        self.presence.publish(&self.etcd, &self.keys, self.lag).await;
        Ok(())
    }

    /// Applies a message of the watch. Returns the records of the changes.
    fn apply_message(&mut self, message: &WatchResponse) -> Result<Vec<Record>, Failure> {
        self.last_message = Instant::now();
        self.warned[ETCD] = None;
        if message.canceled() {
            let reason = message.cancel_reason();
            return Err(match message.compact_revision() {
                // If the user lacks the permission, the next poll fails with the proper error. An
                // expired token is renewed by then.
                0 => Failure::Other(format!("etcd has canceled the watch: {reason}")),
                _ => Failure::Compacted,
            });
        }
        let mut records = Vec::new();
        for event in message.events() {
            self.apply_event(event, &mut records)?;
            // A revision can arrive in several messages, so the next watch requests it again.
            // Applying a change twice is harmless.
            self.next_revision =
                self.next_revision.max(event.kv().map_or(0, KeyValue::mod_revision));
        }
        if message.events().is_empty() && !message.created() {
            let revision = message.header().map_or(0, etcd_client::ResponseHeader::revision);
            self.next_revision = self.next_revision.max(revision.saturating_add(1));
        }
        Ok(records)
    }

    /// Detects changes by other programs. Every transaction of a store changes the head last, so a
    /// change without one is foreign.
    fn detect_foreign_write(&mut self, kv: &KeyValue) {
        let revision = kv.mod_revision();
        let name = self.keys.parse(kv.key());
        if self.unmatched_change.as_ref().is_some_and(|(before, _)| *before != revision)
            && let Some((_, key)) = self.unmatched_change.take()
        {
            self.foreign_keys.warn_once(
                &key,
                "key of the store written or removed by another program: its clients did not write \
                 this value",
            );
        }
        match name {
            Some(Name::Head) => self.unmatched_change = None,
            Some(Name::Value { .. } | Name::Watch { .. }) => {
                self.unmatched_change = Some((revision, kv.key().into()));
            }
            _ => {}
        }
    }

    fn apply_event(&mut self, event: &Event, records: &mut Vec<Record>) -> Result<(), Failure> {
        let Some(kv) = event.kv() else { return Ok(()) };
        let key = kv.key();
        self.detect_foreign_write(kv);
        if event.event_type() == EventType::Delete {
            match self.keys.parse(key) {
                Some(Name::Leader) => self.set_leader(None),
                Some(Name::Responses { number }) => self.response_log.remove(number),
                Some(Name::Format | Name::Head) => self.check_head(None)?,
                _ => {
                    records.extend(self.removal(key)?);
                    self.names.remove(key);
                }
            }
            return Ok(());
        }
        match entry::decode(&self.keys, key, kv.value())? {
            Entry::Format | Entry::Standby(_) => {}
            Entry::Unknown => self.foreign_keys.warn_ignored(key),
            Entry::Leader => self.apply_leader(Some(kv)),
            Entry::Record(record) => {
                self.names.insert(key.into());
                records.push(record);
            }
            Entry::Responses { number, responses } => {
                let retention = responses.iter().map(|response| response.retention).max();
                self.response_log.insert(number, kv.value().len(), retention.unwrap_or_default());
                records.extend(responses.into_iter().map(Record::Response));
            }
            Entry::Head(head) => {
                // Each transaction raises the sequence by one, so a gap means lost changes. The
                // rest of this message is still applied, because its removals must be returned.
                let step = head.sequence.checked_sub(self.head.sequence);
                if !matches!(step, Some(0 | 1)) {
                    warn!(?step, "changes missing from the watch; reading everything again");
                    self.is_incomplete = true;
                    return Ok(());
                }
                if head.epoch != self.head.epoch {
                    self.skew = Skew::default();
                }
                self.skew.observe(head.written, wall_clock::now());
                self.known.observe(&head);
                self.head = head;
            }
        }
        Ok(())
    }
}

/// Writes the layout and a first head, unless another store has done so.
async fn create(etcd: &Etcd, keys: &Keys) -> Result<(), Failure> {
    let head = Head::first(wall_clock::now());
    let txn =
        Txn::new().when([Compare::create_revision(keys.format(), CompareOp::Equal, 0)]).and_then([
            TxnOp::put(keys.format(), FORMAT, None),
            TxnOp::put(keys.head(), head.encode(), None),
        ]);
    etcd.txn(txn, etcd.timeout()).await.map(|_| ())
}
