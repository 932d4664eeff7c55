//! A naive broker: recipients and QoS of each message, from lists instead of a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use statestore_mqtt::Qos;
use statestore_mqtt::topic::Filter;

/// A published message. Later messages have greater numbers.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) topic: &'static str,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) sender: Option<&'static str>,
    /// Time at which the message expires.
    pub(super) expires: Option<Duration>,
    /// Maximum size of a PUBLISH with this message.
    pub(super) size: usize,
}

/// Options of a subscription.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscribed {
    pub(super) qos: Qos,
    pub(super) no_local: bool,
    pub(super) retain_as_published: bool,
    pub(super) id: Option<u32>,
}

/// A message that a session expects.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) sent: Sent,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) ids: Vec<u32>,
    /// True if only the end of the session may prevent its delivery.
    pub(super) must: bool,
}

/// A session: client and number of the session.
type Member = (&'static str, u64);

/// A message for one member of a group.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) number: u64,
    pub(super) members: Vec<Member>,
    pub(super) is_taken: bool,
    /// True if only the end of a member's session may prevent its delivery.
    pub(super) must: bool,
}

/// A message that was sent and is not fully acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// `None` for a message that the model does not know.
    pub(super) number: Option<u64>,
    pub(super) size: usize,
    /// True if it was sent on the current connection.
    pub(super) is_here: bool,
    pub(super) is_released: bool,
    /// True if the client reduced its Maximum Packet Size below the size of the message.
    pub(super) may_be_dropped: bool,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    /// Distinguishes successive sessions of one client.
    pub(super) number: u64,
    pub(super) is_connected: bool,
    /// End of the session while its client is disconnected. `None` before the first session.
    pub(super) ends_at: Option<Duration>,
    pub(super) expiry: Duration,
    /// Number of evictions when this session was last known to exist.
    pub(super) evicted: u64,
    /// True if the client has sent arbitrary bytes.
    pub(super) is_unchecked: bool,
    pub(super) subscriptions: BTreeMap<&'static str, Subscribed>,
    /// All filters that the client ever subscribed to.
    pub(super) filters: BTreeSet<&'static str>,
    pub(super) expected: Vec<Expected>,
    /// Retained messages that are expected, with their filter.
    pub(super) replayed: Vec<(&'static str, Expected)>,
    pub(super) in_flight: BTreeMap<u16, Flight>,
    /// True if a connection ended within a PUBLISH at QoS 1 or 2, which is redelivered.
    pub(super) was_cut: bool,
    /// Packet identifiers at QoS 2 that the client has not released.
    pub(super) received: BTreeSet<u16>,
    /// Number of the last message that the client received.
    pub(super) last: u64,
    /// True if the client ever limited the packet size.
    pub(super) had_limit: bool,
    /// The client's Maximum Packet Size in bytes.
    pub(super) packet_bytes: usize,
}

impl Session {
    /// Starts a new session for the same client.
    pub(super) fn renew(&mut self) {
        *self = Self { number: self.number + 1, last: self.last, ..Self::default() };
    }

    /// Handles the disconnect of the client. `within_delivery` is true if its last packet is an
    /// incomplete PUBLISH at QoS 1 or 2.
    pub(super) fn leave(&mut self, now: Duration, within_delivery: bool) {
        self.is_connected = false;
        self.was_cut |= within_delivery;
        self.ends_at = Some(now.saturating_add(self.expiry));
        let expected = self.expected.iter_mut().chain(self.replayed.iter_mut().map(|(_, one)| one));
        expected.filter(|one| one.qos == Qos::AtMostOnce).for_each(|one| one.must = false);
        self.in_flight.values_mut().for_each(|one| one.is_here = false);
        if self.expiry.is_zero() {
            self.subscriptions.clear();
        }
    }

    /// Handles the expiry of the session.
    pub(super) fn pass(&mut self, now: Duration) {
        if self.ends_at.is_some_and(|at| at <= now) {
            self.subscriptions.clear();
        }
    }

    /// Applies the client's Maximum Packet Size.
    pub(super) fn limit_packets(&mut self, packet_bytes: usize) {
        self.packet_bytes = packet_bytes;
        self.had_limit |= packet_bytes < usize::MAX;
        let expected = self.expected.iter_mut().chain(self.replayed.iter_mut().map(|(_, one)| one));
        expected.filter(|one| one.sent.size > packet_bytes).for_each(|one| one.must = false);
        let large = self.in_flight.values_mut().filter(|one| one.size > packet_bytes);
        large.for_each(|one| one.may_be_dropped = true);
    }
}

/// Returns whether only the host may receive a topic: it begins with `h`.
pub(super) fn is_for_host(topic: &str) -> bool {
    topic.starts_with('h')
}

pub(super) fn matches(filter: &str, topic: &str) -> bool {
    Filter::parse(filter).is_some_and(|filter| filter.matches(topic)) && !is_for_host(topic)
}

/// The model of the broker.
#[derive(Debug, Default)]
pub(super) struct Naive {
    pub(super) sessions: BTreeMap<&'static str, Session>,
    pub(super) shared: Vec<Shared>,
    pub(super) retained: BTreeMap<&'static str, Sent>,
    /// Every message that was ever published with the retain flag, by number.
    pub(super) once_retained: BTreeMap<u64, &'static str>,
}

impl Naive {
    pub(super) fn session(&mut self, name: &'static str) -> &mut Session {
        self.sessions.entry(name).or_default()
    }

    /// Publishes a message. If it is `sure`, its recipients must receive it. Returns whether there
    /// are recipients.
    pub(super) fn publish(&mut self, sent: &Sent, sure: bool, keeps_all: bool) -> bool {
        if sent.retain {
            self.retain(sent);
        }
        let mut groups: BTreeMap<&str, (Qos, Vec<Member>)> = BTreeMap::new();
        let mut is_received = false;
        for (name, session) in &mut self.sessions {
            let is_own = sent.sender == Some(*name);
            let all = session.subscriptions.iter().filter(|(text, _)| matches(text, sent.topic));
            let (shared, own): (Vec<_>, Vec<_>) =
                all.partition(|(text, _)| text.starts_with("$share/"));
            for (text, how) in shared {
                let (qos, members) = groups.entry(text).or_insert((sent.qos, Vec::new()));
                *qos = how.qos.min(*qos);
                members.push((*name, session.number));
            }
            let own: Vec<&Subscribed> =
                own.iter().map(|(_, one)| *one).filter(|one| !(is_own && one.no_local)).collect();
            let Some(qos) = own.iter().map(|one| one.qos).max() else { continue };
            is_received = true;
            let qos = qos.min(sent.qos);
            let is_kept = qos > Qos::AtMostOnce || (keeps_all && session.is_connected);
            let mut ids: Vec<u32> = own.iter().filter_map(|one| one.id).collect();
            ids.sort_unstable();
            session.expected.push(Expected {
                sent: sent.clone(),
                qos,
                retain: sent.retain && own.iter().any(|one| one.retain_as_published),
                ids,
                must: sure && is_kept && sent.size <= session.packet_bytes && !session.is_unchecked,
            });
        }
        for (qos, members) in groups.into_values() {
            is_received = true;
            let number = sent.number;
            let must = sure && qos > Qos::AtMostOnce && sent.expires.is_none();
            self.shared.push(Shared { number, members, is_taken: false, must });
        }
        is_received
    }

    /// Handles a message that was refused, or may have been.
    pub(super) fn retract(&mut self, number: u64, was_refused: bool) {
        for session in self.sessions.values_mut() {
            let its = session.expected.iter_mut().filter(|one| one.sent.number == number);
            its.for_each(|one| one.must = false);
            session.expected.retain(|one| !was_refused || one.sent.number != number);
        }
        let its = self.shared.iter_mut().filter(|one| one.number == number);
        its.for_each(|one| one.must = false);
        self.shared.retain(|one| !was_refused || one.number != number);
    }

    fn retain(&mut self, sent: &Sent) {
        self.once_retained.insert(sent.number, sent.topic);
        self.forget_retained(sent.topic);
        self.retained.insert(sent.topic, sent.clone());
    }

    /// Forgets the retained message of a topic. Recipients may still receive it, but need not.
    pub(super) fn forget_retained(&mut self, topic: &str) {
        self.retained.remove(topic);
        let replayed = self.sessions.values_mut().flat_map(|session| &mut session.replayed);
        replayed.filter(|(_, one)| one.sent.topic == topic).for_each(|(_, one)| one.must = false);
    }

    /// Subscribes. Expects the matching retained messages if the options request them.
    pub(super) fn subscribe(
        &mut self,
        name: &'static str,
        filter: &'static str,
        how: Subscribed,
        replays: impl Fn(bool) -> bool,
        sure: bool,
    ) {
        let session = self.sessions.entry(name).or_default();
        let is_new = session.subscriptions.insert(filter, how).is_none();
        session.filters.insert(filter);
        if filter.starts_with("$share/") || !replays(is_new) {
            return;
        }
        let before = session.replayed.iter_mut().filter(|(other, _)| *other == filter);
        before.for_each(|(_, one)| one.must = false);
        for sent in self.retained.values().filter(|sent| matches(filter, sent.topic)) {
            let is_own = how.no_local && sent.sender == Some(name);
            let fits = sent.size <= session.packet_bytes;
            let expected = Expected {
                sent: sent.clone(),
                qos: how.qos.min(sent.qos),
                retain: true,
                ids: how.id.into_iter().collect(),
                must: sure && !is_own && fits && !session.is_unchecked,
            };
            session.replayed.push((filter, expected));
        }
    }

    pub(super) fn unsubscribe(&mut self, name: &'static str, filter: &'static str) -> bool {
        let session = self.session(name);
        let before = session.replayed.iter_mut().filter(|(other, _)| *other == filter);
        before.for_each(|(_, one)| one.must = false);
        session.subscriptions.remove(filter).is_some()
    }
}
