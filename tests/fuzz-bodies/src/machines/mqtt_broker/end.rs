//! Local clients, the host, time, and the final checks.

use std::collections::VecDeque;
use std::time::Duration;

use statestore_broker::{Broker, Busy, Config, LocalEvent, LocalId, Wake};
use statestore_mqtt::packet::{Connect, Packet, Publish, Subscription, SubscriptionOptions};
use statestore_mqtt::property::Property;
use statestore_mqtt::{Qos, Reason};

use super::naive::{Expected, Sent};
use super::run::{self, ConnectFields, ForHost, Run, Slot};
use super::{FILTERS, HOST, NAMES, TOPICS, pick};
use statestore_models::machines::Args;

/// Maximum number of calls until a finite process must have ended.
const TURNS_MAX: usize = 10_000;

impl Run {
    pub(super) fn attach(&mut self, at: u8) {
        let which = usize::from(at) % self.locals.len();
        let name = Self::name(at / 2);
        self.detach(at);
        self.sync();
        match self.broker.attach(self.now, name) {
            Ok(id) => {
                self.sync();
                self.naive.session(name).expiry = Duration::ZERO;
                // The will of another client may have evicted this client immediately.
                self.open_session(name, false, true);
                self.naive.session(name).limit_packets(usize::MAX);
                self.locals[which] = Some((id, name));
            }
            Err(reason) => assert!(self.is_small && reason == Reason::QUOTA_EXCEEDED, "{reason}"),
        }
    }

    pub(super) fn detach(&mut self, at: u8) {
        if let Some((id, name)) = self.locals[usize::from(at) % 2].take() {
            let was_attached = self.broker.is_attached(id);
            self.broker.detach(self.now, id);
            assert!(!self.broker.is_attached(id));
            let was_evicted = !was_attached;
            self.naive.session(name).leave(self.now, false);
            run::end_client(
                self.has_host,
                self.for_host.entry(name).or_default(),
                &VecDeque::new(),
                was_evicted,
            );
        }
    }

    pub(super) fn subscribe_local(&mut self, [a, filter, flags, ..]: Args) {
        let Some((id, name)) = self.locals[usize::from(a) % 2] else { return };
        let filter = pick(&FILTERS, filter);
        let options =
            SubscriptionOptions { qos: Self::qos(flags), ..SubscriptionOptions::default() };
        let reason = self.broker.subscribe_local(id, &Subscription { filter, options });
        if reason.is_error() {
            assert!(self.is_small, "{filter}: {reason}");
        } else {
            self.model_subscribe(name, filter, &options, None);
        }
    }

    pub(super) fn publish_local(&mut self, [a, topic, flags, len, d]: Args) {
        let Some((id, name)) = self.locals[usize::from(a) % 2] else { return };
        let sent = self.message(Some(name), pick(&TOPICS, topic), flags, len, d);
        let wants = self.broker.can_publish_local(id);
        let result = self.host_or_local(id, &sent, len, d);
        assert_eq!(result.is_err(), !wants);
        if let Ok(reason) = result {
            let is_sure = self.broker.is_attached(id);
            if !reason.is_error() {
                self.model_publish(&sent, is_sure);
            }
            assert!(!reason.is_error() || self.is_small, "{reason}");
        }
    }

    fn host_or_local(&mut self, id: LocalId, sent: &Sent, len: u8, d: u8) -> Result<Reason, Busy> {
        let payload = self.payload(sent, len);
        let properties = sent.expires.map(|_| Property::MessageExpiry(u32::from(d % 16)));
        let packet = Publish {
            dup: false,
            qos: sent.qos,
            retain: sent.retain,
            topic: sent.topic,
            id: None,
            properties: properties.as_slice(),
            payload: &payload,
        };
        self.broker.publish_local(self.now, id, &packet)
    }

    pub(super) fn poll_local(&mut self, at: u8, count: usize) {
        let Some((id, name)) = self.locals[usize::from(at) % 2] else { return };
        for _ in 0..count {
            match self.broker.poll_local(self.now, id) {
                None => return,
                Some(LocalEvent::Message(message, _)) => {
                    if let Some(number) = self.number(&message.payload()) {
                        self.check_message(name, number, None, self.now);
                    }
                }
                Some(LocalEvent::Gone(_)) => panic!("only the host receives this event"),
                // `sync` handles this case.
                Some(LocalEvent::Detached(_)) => return,
            }
        }
    }

    pub(super) fn attach_host(&mut self) {
        let before = self.host.replace(self.broker.attach_host(self.now, HOST));
        if let Some(before) = before {
            let over = self.broker.poll_local(self.now, before);
            assert!(matches!(over, Some(LocalEvent::Detached(Reason::SESSION_TAKEN_OVER))));
            self.broker.detach(self.now, before);
        }
        if !self.has_host {
            subscribe_host(&mut self.broker, self.host);
            self.has_host = true;
            for (name, session) in &self.naive.sessions {
                if session.is_connected {
                    self.for_host.entry(name).or_default();
                }
            }
        }
    }

    pub(super) fn detach_host(&mut self) {
        if let Some(id) = self.host.take() {
            self.broker.detach(self.now, id);
        }
    }

    pub(super) fn publish_host(&mut self, [_, topic, flags, len, d]: Args) {
        let Some(id) = self.host else { return };
        let sent = self.message(None, pick(&TOPICS, topic), flags, len, d);
        let reason = self.host_or_local(id, &sent, len, d).expect("the host is never busy");
        assert!(!reason.is_error() || self.is_small, "{reason}");
        if !reason.is_error() {
            self.model_publish(&sent, true);
        }
    }

    pub(super) fn deliver(&mut self, [name, _, flags, len, _]: Args) {
        let name = Self::name(name);
        let sent = self.message(None, "t", flags & 0x0f, len, 0);
        let payload = self.payload(&sent, len);
        let packet = Publish {
            dup: false,
            qos: sent.qos,
            retain: false,
            topic: "t",
            id: None,
            properties: (),
            payload: &payload,
        };
        let was_there = self.broker.is_connected(name);
        let reason = self.broker.deliver(self.now, name, &packet);
        let is_there = self.broker.is_connected(name);
        let unreachable = Reason::NO_MATCHING_SUBSCRIBERS;
        let expected = if was_there && is_there { Reason::SUCCESS } else { unreachable };
        assert_eq!(reason, expected);
        let is_small = self.is_small;
        let session = self.naive.session(name);
        if was_there {
            let must = !session.is_unchecked
                && sent.size <= session.packet_bytes
                && (sent.qos > Qos::AtMostOnce || !is_small);
            let (qos, ids) = (sent.qos, Vec::new());
            let expected = Expected { sent, qos, retain: false, ids, must };
            session.expected.push(expected);
        }
    }

    pub(super) fn poll_host(&mut self, count: usize) -> usize {
        let Some(id) = self.host else { return 0 };
        for at in 0..count {
            match self.broker.poll_local(self.now, id) {
                None => return at,
                Some(LocalEvent::Message(message, _)) => {
                    let sender = message.sender().expect("from another client");
                    let name = NAMES.iter().find(|name| ***name == **sender);
                    if let Some((name, number)) = name.zip(self.number(&message.payload())) {
                        self.check_host_message(name, number);
                    }
                }
                Some(LocalEvent::Gone(gone)) => {
                    if let Some(name) = NAMES.iter().find(|name| ***name == *gone) {
                        self.check_host_gone(name);
                    }
                }
                Some(LocalEvent::Detached(reason)) => panic!("{reason}"),
            }
        }
        count
    }

    fn check_host_message(&mut self, name: &'static str, of: u64) {
        let (is_unchecked, now) = (self.unknown.contains(name), self.now);
        let queue = self.for_host.entry(name).or_default();
        while let Some(item) = queue.pop_front() {
            match item {
                ForHost::Message { number, expires, .. } if number == of => {
                    assert!(expires.is_none_or(|at| now < at), "{number} is late");
                    return;
                }
                ForHost::Message { number, must, expires } => {
                    let is_late = expires.is_some_and(|at| at <= now);
                    assert!(
                        !must || is_late || is_unchecked,
                        "{number} of {name} is lost before {of}"
                    );
                }
                ForHost::Gone { is_reported } => {
                    assert!(
                        is_reported || is_unchecked,
                        "{of} of {name} arrived after its disconnect"
                    );
                }
            }
        }
        assert!(is_unchecked, "{of} of {name} is duplicate or out of order");
    }

    fn check_host_gone(&mut self, name: &'static str) {
        let (is_unchecked, now) = (self.unknown.contains(name), self.now);
        let queue = self.for_host.entry(name).or_default();
        while let Some(item) = queue.front_mut() {
            match item {
                ForHost::Gone { is_reported: is_reported @ false } => {
                    *is_reported = true;
                    return;
                }
                ForHost::Gone { .. } => {}
                ForHost::Message { number, must, expires } => {
                    let is_late = expires.is_some_and(|at| at <= now);
                    assert!(
                        !*must || is_late || is_unchecked,
                        "{number} of {name} is lost at its disconnect"
                    );
                }
            }
            queue.pop_front();
        }
        assert!(is_unchecked, "too many disconnects of {name}");
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        for turn in 0.. {
            let Some(due) = self.broker.poll_timeout().filter(|due| *due <= end) else { break };
            assert!(turn < TURNS_MAX, "the timers do not come to rest");
            self.now = self.now.max(due);
            self.broker.handle_timeout(self.now);
            self.sync();
        }
        self.now = end;
        self.naive.sessions.values_mut().for_each(|session| session.pass(end));
    }

    /// Checks the memory limit, after closing the connections that are about to end.
    pub(super) fn check(&mut self) {
        let max = self.limits.memory;
        if self.broker.stats().bytes <= max {
            return;
        }
        let closing = |slot: &Slot, broker: &Broker| broker.is_closing(slot.id);
        for at in 0..self.slots.len() {
            if self.slots[at].as_ref().is_some_and(|slot| closing(slot, &self.broker)) {
                self.close(at);
            }
        }
        // The second timeout handles events caused by the closed connections.
        self.broker.handle_timeout(self.now);
        self.sync();
        for at in 0..self.slots.len() {
            if self.slots[at].as_ref().is_some_and(|slot| closing(slot, &self.broker)) {
                self.close(at);
            }
        }
        while self.poll_host(TURNS_MAX) > 0 {}
        let stats = self.broker.stats();
        assert!(stats.bytes <= max, "{stats:?}");
    }

    /// Lets all clients read and acknowledge until the broker is idle. Only connections that the
    /// broker wakes are read.
    fn drain(&mut self) {
        for turn in 0.. {
            assert!(turn < TURNS_MAX, "the broker does not come to rest");
            self.pass(Duration::ZERO);
            self.wakes(true);
            self.sync();
            let mut is_idle = self.ready.is_empty();
            for at in 0..self.slots.len() {
                is_idle &= self.slots[at].as_ref().is_none_or(|slot| !slot.has_to_do());
                self.acknowledge(at, TURNS_MAX);
            }
            self.sync();
            for at in 0..2 {
                self.poll_local(at, TURNS_MAX);
            }
            is_idle &= self.poll_host(TURNS_MAX) == 0;
            self.sync();
            is_idle &= self.broker.poll_timeout().is_none_or(|due| due > self.now);
            if is_idle && !self.has_wakes() {
                break;
            }
        }
        for at in 0..self.slots.len() {
            let received = self.read(at, 1);
            assert!(received.is_empty(), "no wake announced {received:?}");
        }
    }

    /// Checks that connected clients have received all expected messages.
    fn check_received(&self) {
        let now = self.now;
        for (name, session) in &self.naive.sessions {
            if session.is_unchecked || !session.is_connected {
                continue;
            }
            // A retained will may have replaced a message.
            let replayed = session.replayed.iter().filter(|_| !self.is_tainted);
            let replayed = replayed.map(|(_, one)| one);
            let lost = session
                .expected
                .iter()
                .chain(replayed)
                .find(|one| one.must && one.sent.expires.is_none_or(|at| at > now));
            assert!(lost.is_none(), "{name} has not received {lost:?}");
        }
        for shared in self.naive.shared.iter().filter(|one| one.must && !one.is_taken) {
            let lives = |(name, number): &(&'static str, u64)| {
                self.naive.sessions.get(name).is_some_and(|session| {
                    session.number == *number
                        && session.is_connected
                        && !session.is_unchecked
                        && !session.had_limit
                })
            };
            assert!(
                self.is_tainted || !shared.members.iter().all(lives),
                "no member of the group has received {shared:?}"
            );
        }
    }

    /// Reconnects every client, which receives the remaining messages and leaves.
    pub(super) fn end(mut self) {
        while !self.logins.is_empty() {
            self.login(0, 1);
            self.sync();
        }
        if self.has_host && self.host.is_none() {
            self.attach_host();
        }
        self.drain();
        self.check_received();
        for at in 0..self.slots.len() {
            self.close(at);
        }
        self.detach(0);
        self.detach(1);
        self.sync();
        for (at, name) in NAMES.into_iter().enumerate() {
            self.reconnect(at, name);
        }
        self.drain();
        self.check_received();
        for at in 0..self.slots.len() {
            self.close(at);
        }
        self.pass(Duration::from_secs(1 << 40));
        self.clear_retained();
        self.drain();
        for (name, queue) in &self.for_host {
            let lost = queue
                .iter()
                .find(|item| matches!(item, ForHost::Message { must: true, expires: None, .. }));
            let is_unchecked = self.unknown.contains(name);
            assert!(
                lost.is_none() || is_unchecked || !self.has_host,
                "the host has not received {lost:?} of {name}"
            );
        }
        self.detach_host();
        let mut fresh = Broker::new(Config::default());
        if self.has_host {
            let host = Some(fresh.attach_host(self.now, HOST));
            subscribe_host(&mut fresh, host);
        }
        let held = |broker: &Broker| {
            let stats = broker.stats();
            (stats.bytes, stats.sessions, stats.connections, stats.retained)
        };
        assert_eq!(held(&self.broker), held(&fresh), "all memory is freed");
        assert_eq!(self.broker.poll_timeout(), None);
    }

    fn reconnect(&mut self, at: usize, name: &'static str) {
        self.slots[at] = None;
        let Ok(id) = self.broker.handle_accept(self.now, None) else { return };
        self.slots[at] = Some(Slot::new(id, None));
        let connect = Connect {
            clean_start: false,
            keep_alive: 0,
            properties: &[][..],
            client_id: name,
            will: None,
            user_name: None,
            password: None,
        };
        let fields = ConnectFields {
            name,
            clean_start: false,
            expiry: Duration::ZERO,
            receive_maximum: usize::from(u16::MAX),
            packet_bytes: usize::MAX,
            alias_max: 0,
        };
        self.connect(at, &Packet::Connect(connect), fields);
        while !self.logins.is_empty() {
            self.login(0, 1);
        }
        self.sync();
    }

    /// Removes all retained messages.
    fn clear_retained(&mut self) {
        let Ok(last) = self.broker.attach(self.now, "last") else { panic!("the broker is full") };
        for topic in TOPICS {
            let clear = Publish {
                dup: false,
                qos: Qos::AtMostOnce,
                retain: true,
                topic,
                id: None,
                properties: (),
                payload: &[],
            };
            let reason = self.broker.publish_local(self.now, last, &clear).expect("not busy");
            assert!(!reason.is_error(), "{reason}");
        }
        self.broker.detach(self.now, last);
    }

    fn has_wakes(&mut self) -> bool {
        let mut has = false;
        while let Some(wake) = self.broker.poll_wake() {
            if let Wake::Connection(id) = wake {
                has |= self.slots.iter().flatten().any(|slot| slot.id == id);
                self.ready.insert(id);
            }
        }
        has
    }
}

fn subscribe_host(broker: &mut Broker, host: Option<LocalId>) {
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    if let Some(host) = host {
        let reason = broker.subscribe_local(host, &Subscription { filter: "h", options });
        assert_eq!(reason, Reason::GRANTED_QOS_1);
    }
}
