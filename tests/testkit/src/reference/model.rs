//! The protocol as a naive model: one table, one clock, no borrowed bytes, no code shared with the
//! rules of the core. A store must reply as the model does.

use std::collections::{BTreeMap, BTreeSet};

use statestore_proto::message::{Command, Condition, Notification, Refusal, Reply, ServiceError};
use statestore_proto::time::Now;

pub mod clock;
#[cfg(test)]
mod tests;

use clock::{Clock, DRIFT_MAX, LEAD_MAX, Stamp};

/// A stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its bytes.
    pub value: Vec<u8>,
    /// The version that the SET got.
    pub version: Stamp,
    /// The token that the SET carried.
    pub fence: Option<Stamp>,
    /// Expiry, on the monotonic clock.
    pub expires: Option<u64>,
}

/// A request: the payload decoded, its properties as text.
#[derive(Clone, Debug)]
pub struct Request {
    /// Time at which the store executes it.
    pub now: Now,
    /// The MQTT client id of the requester.
    pub client: String,
    /// Command.
    pub command: Command<Vec<u8>>,
    /// `__ts`.
    pub timestamp: Option<String>,
    /// `__ft`.
    pub token: Option<String>,
    /// Whether the command would exceed a limit.
    pub full: bool,
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notified {
    /// Client id of the recipient.
    pub client: String,
    /// Key.
    pub key: Vec<u8>,
    /// Change.
    pub notification: Notification<Vec<u8>>,
    /// Version of the value set or deleted.
    pub version: Stamp,
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The reply.
    pub reply: Reply<Vec<u8>>,
    /// `__ts` of the reply.
    pub version: Option<Stamp>,
    /// The notifications, in order.
    pub notified: Vec<Notified>,
}

/// The naive store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Stored values.
    pub items: BTreeMap<Vec<u8>, Item>,
    /// Registrations: key, then client id.
    pub watches: BTreeSet<(Vec<u8>, String)>,
    /// Source of versions.
    pub clock: Clock,
}

type Verdict = (Reply<Vec<u8>>, Option<Stamp>);

impl Model {
    /// An empty store whose versions carry this node id.
    #[must_use]
    pub fn new(node: &str) -> Self {
        Self { items: BTreeMap::new(), watches: BTreeSet::new(), clock: Clock::new(node, u64::MAX) }
    }

    /// Executes a request; first removes expired values and notifies their registrations.
    pub fn request(&mut self, request: &Request) -> Answer {
        let mut notified = self.expire(request.now.instant.as_millis());
        let (reply, version) = match self.run(request, &mut notified) {
            Ok(verdict) => verdict,
            Err(refusal) => (Reply::Error(ServiceError::Known(refusal)), None),
        };
        Answer { reply, version, notified }
    }

    fn run(&mut self, request: &Request, notified: &mut Vec<Notified>) -> Result<Verdict, Refusal> {
        let command = &request.command;
        let (timestamp, token) = stamps(request, self.clock.own)?;
        let key = command.key();
        let held = self.items.get(key).cloned();
        let write =
            matches!(command, Command::Set { .. } | Command::Del { .. } | Command::VDel { .. });
        if let (true, Some(fence)) = (write, held.as_ref().and_then(|item| item.fence.as_ref())) {
            match &token {
                None => return Err(Refusal::FencingTokenRequired),
                Some(token) if token < fence => return Err(Refusal::FencingTokenLower),
                Some(_) => {}
            }
        }
        let watch = (key.clone(), request.client.clone());
        match command {
            Command::Get { .. } => Ok(match held {
                Some(item) => (Reply::Value(item.value), Some(item.version)),
                None => (Reply::Absent, None),
            }),
            Command::Set { value, condition, expiry, .. } => {
                let barrier = match condition {
                    Condition::Always => None,
                    Condition::IfAbsent => held,
                    Condition::IfAbsentOrEqual => held.filter(|item| item.value != *value),
                    Condition::IfAbsentOrEqualTo(other) => {
                        held.filter(|item| item.value != other.as_bytes())
                    }
                };
                if let Some(item) = barrier {
                    return Ok((Reply::NotApplied, Some(item.version)));
                }
                if request.full {
                    return Err(Refusal::QuotaExceeded);
                }
                let seen = timestamp.max(token.clone()).ok_or(Refusal::MissingTimestamp)?;
                let now = request.now.unix.as_millis();
                let version = self.clock.receive(now, &seen).map_err(|_| Refusal::TimestampSkew)?;
                let now = request.now.instant.as_millis();
                let expires = expiry.map(|expiry| now.saturating_add(expiry.as_millis()));
                let item =
                    Item { value: value.clone(), version: version.clone(), fence: token, expires };
                self.items.insert(key.clone(), item);
                notified.extend(self.notify(key, &Notification::Set(value.clone()), &version));
                Ok((Reply::Done, Some(version)))
            }
            Command::Del { .. } | Command::VDel { .. } => {
                let Some(item) = held else { return Ok((Reply::NothingRemoved, None)) };
                if matches!(command, Command::VDel { value, .. } if item.value != *value) {
                    return Ok((Reply::NotApplied, Some(item.version)));
                }
                self.items.remove(key);
                notified.extend(self.notify(key, &Notification::Deleted, &item.version));
                Ok((Reply::Removed, Some(item.version)))
            }
            Command::Watch { .. } if request.full && !self.watches.contains(&watch) => {
                Err(Refusal::QuotaExceeded)
            }
            Command::Watch { .. } => {
                self.watches.insert(watch);
                Ok((Reply::Done, None))
            }
            Command::Unwatch { .. } if self.watches.remove(&watch) => Ok((Reply::Done, None)),
            Command::Unwatch { .. } => Ok((Reply::NotWatched, None)),
        }
    }

    /// Removes values expired by `now` on the monotonic clock, the earliest first.
    pub fn expire(&mut self, now: u64) -> Vec<Notified> {
        let due = |(key, item): (&Vec<u8>, &Item)| {
            Some((item.expires.filter(|at| *at <= now)?, key.clone()))
        };
        let mut gone: Vec<_> = self.items.iter().filter_map(due).collect();
        gone.sort();
        let mut notified = Vec::new();
        for (_, key) in gone {
            if let Some(item) = self.items.remove(&key) {
                notified.extend(self.notify(&key, &Notification::Deleted, &item.version));
            }
        }
        notified
    }

    /// Removes the registrations of a disconnected client.
    pub fn client_gone(&mut self, client: &str) {
        self.watches.retain(|(_, watcher)| watcher != client);
    }

    fn notify(
        &self,
        key: &[u8],
        notification: &Notification<Vec<u8>>,
        version: &Stamp,
    ) -> Vec<Notified> {
        let notified = |(_, client): &(Vec<u8>, String)| Notified {
            client: client.clone(),
            key: key.to_vec(),
            notification: notification.clone(),
            version: version.clone(),
        };
        self.watches.iter().filter(|(watched, _)| watched == key).map(notified).collect()
    }
}

/// Checks `__ts` of a SET and `__ft` of any write; other commands ignore both.
///
/// # Errors
/// The refusal of the first one that is missing, malformed or too far ahead.
pub fn stamps(
    request: &Request,
    (wall, counter): (u64, u64),
) -> Result<(Option<Stamp>, Option<Stamp>), Refusal> {
    let limit = u128::from(request.now.unix.as_millis()) + u128::from(DRIFT_MAX);
    let read = |text: &str, skew| {
        let stamp = clock::parse(text).ok_or(Refusal::MalformedTimestamp)?;
        let past_wall_clock = u128::from(stamp.0) > limit;
        let past_own_clock = stamp.0 > wall
            || stamp.0 == wall && u128::from(stamp.1) > u128::from(counter) + LEAD_MAX;
        if past_wall_clock && past_own_clock { Err(skew) } else { Ok(stamp) }
    };
    let (needed, allowed) = match request.command {
        Command::Set { .. } => (true, true),
        Command::Del { .. } | Command::VDel { .. } => (false, true),
        Command::Get { .. } | Command::Watch { .. } | Command::Unwatch { .. } => (false, false),
    };
    let mut found = (None, None);
    if needed {
        let text = request.timestamp.as_ref().ok_or(Refusal::MissingTimestamp)?;
        found.0 = Some(read(text, Refusal::TimestampSkew)?);
    }
    if let (true, Some(text)) = (allowed, &request.token) {
        found.1 = Some(read(text, Refusal::FencingTokenSkew)?);
    }
    Ok(found)
}
