//! Stage 4: a redelivered request gets its first response again.

use core::time::Duration;

use super::{Address, Executed};
use crate::message::{Command, RequestKind};
use crate::store::dedup::{NewResponse, RequestKey};
use crate::store::{
    Durability, Entry, Principal, Record, Refused, RequestOutcome, StorageSpace, Store,
};
use crate::time::Now;
use crate::transport::Incoming;

/// The retention of a response if its request lacks a message expiry interval.
const RESPONSE_RETENTION: Duration = Duration::from_secs(60);

/// The shortest retention of a response. A request with a message expiry interval of zero is
/// delivered at once, and may be delivered twice.
const RESPONSE_RETENTION_MIN: Duration = Duration::from_secs(1);

/// The longest retention of a response. A duplicate that a broker holds back for longer is executed
/// again, and responses that are retained for longer than others do not use up the cache (our
/// choice).
const RESPONSE_RETENTION_MAX: Duration = Duration::from_secs(60 * 60);

impl Store {
    /// Executes a request once: a duplicate gets the first response again.
    pub(super) fn deduplicate(
        &mut self,
        now: Now,
        sender: Principal<'_>,
        incoming: &Incoming<'_>,
        address: &Address,
        command: &Command<&[u8]>,
    ) -> Executed {
        let Some(correlation) = &address.correlation else {
            return address.refuse(Refused::NoCorrelationData);
        };
        let authorized = self.authorize(sender, incoming, command);
        let client_id = sender.client_id().unwrap_or_default();
        let content = self.dedup.content_hash(incoming);
        let key = RequestKey {
            client_id,
            response_topic: &address.topic,
            correlation: correlation.as_bytes(),
            content,
        };
        let hash = self.dedup.hash_of(key);
        let first = self.dedup.find(hash, key);
        let is_duplicate = first.is_some();
        let number = match (first, &authorized) {
            (Some((response, number)), Ok(())) if command.kind() != RequestKind::Watch => {
                if command.kind() == RequestKind::Unwatch {
                    // The KEYNOTIFY before this STOP may have been redelivered too.
                    let ended = self.registrations.remove_earlier(client_id, command.key(), number);
                    self.record_end(ended);
                }
                return Executed::new(response, RequestOutcome::Duplicate);
            }
            (Some((_, number)), _) => number,
            (None, _) => self.dedup.next_number(),
        };
        // A request that is not authorized has no effect, and is refused again after a restart.
        let is_recorded =
            !is_duplicate && authorized.is_ok() && self.records_response(incoming, command);
        let executed = authorized
            .and_then(|()| self.execute(now, sender, incoming, address, command, number))
            .unwrap_or_else(|refused| address.refuse(refused));
        // With little space, only responses to changes are recorded.
        let has_effect = matches!(executed.outcome, RequestOutcome::Applied);
        let has_space = self.storage_space == StorageSpace::Enough;
        let is_recorded = is_recorded && (has_effect || has_space);
        if !is_duplicate {
            let response = NewResponse {
                response_topic: address.topic.clone(),
                correlation: correlation.clone(),
                content,
                response: executed.response.clone(),
                retention: retention(incoming),
                is_recorded,
            };
            self.cache_response(now, hash, sender, command.key(), number, response);
        }
        executed
    }

    /// Returns whether the response to a request needs a record: its effect is durable, or it may
    /// be refused because of durable state.
    pub(in crate::store) fn records_response(
        &self,
        incoming: &Incoming<'_>,
        command: &Command<&[u8]>,
    ) -> bool {
        match (self.config.durability, command.kind()) {
            // A redelivered KEYNOTIFY is executed again.
            (_, RequestKind::Watch) => false,
            (_, RequestKind::Unwatch) => self.config.records_registrations(),
            (Durability::None, _) => false,
            (Durability::All, _) => true,
            (Durability::Requested, _) => {
                self.config.persists(command.key(), incoming.properties.persist)
                    || self.keyspace.entry(command.key()).is_some_and(Entry::is_persistent)
            }
        }
    }

    fn cache_response(
        &mut self,
        now: Now,
        hash: u64,
        sender: Principal<'_>,
        key: &[u8],
        number: u64,
        response: NewResponse,
    ) {
        if response.is_recorded {
            let given_at = self.dedup.age_at(now.instant);
            let recorded = response.to_record(sender, given_at, number);
            self.outbox.record(key, Record::Response(recorded));
        }
        self.dedup.insert(now.instant, hash, sender, response);
    }
}

/// The retention of the response to a request: twice the message expiry interval, since a duplicate
/// may arrive at the broker just before that has passed, and may then wait there for as long again.
fn retention(incoming: &Incoming<'_>) -> Duration {
    let twice = incoming.message_expiry.map(|seconds| Duration::from_secs(2 * u64::from(seconds)));
    twice.unwrap_or(RESPONSE_RETENTION).clamp(RESPONSE_RETENTION_MIN, RESPONSE_RETENTION_MAX)
}
