//! Packets that arrive at a client: checks of their content, and acknowledgements.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::BytesMut;
use statestore_broker::{Output, Wake};
use statestore_mqtt::packet::{Ack, Packet};
use statestore_mqtt::{Qos, Reason};

use super::naive::{self, Expected, Flight};
use super::run::{PIECES_MAX, Run, set_must};
use super::wire::{self, Received};

impl Run {
    /// Reads the output of a connection with at most this many polls.
    pub(super) fn read(&mut self, at: usize, pieces: usize) -> Vec<Received> {
        let Some(id) = self.slots[at].as_ref().map(|slot| slot.id) else { return Vec::new() };
        let mut all = Vec::new();
        for _ in 0..pieces {
            let mut out = BytesMut::new();
            let dropped = self.broker.stats().dropped;
            let output = self.broker.poll_output(self.now, id, &mut out);
            let has_progress = !out.is_empty() || self.broker.stats().dropped > dropped;
            assert!(output != Output::More || has_progress, "more output, but no bytes");
            let slot = self.slots[at].as_mut().expect("still there");
            let received = slot.reader.read(self.now, &out);
            for one in received {
                self.check_packet(at, &one);
                all.push(one);
            }
            if output == Output::More {
                self.ready.insert(id);
                continue;
            }
            self.ready.remove(&id);
            if output == Output::Close {
                if let Some(slot) = &self.slots[at] {
                    slot.reader.end();
                }
                assert!(self.broker.is_closing(id));
            }
            break;
        }
        all
    }

    /// Checks one packet that a connection received.
    fn check_packet(&mut self, at: usize, received: &Received) {
        let Some(slot) = &mut self.slots[at] else { return };
        if slot.is_unchecked {
            return;
        }
        let Some(name) = slot.name else { return };
        match received {
            Received::ConnAck(present, Reason::SUCCESS) => self.handle_connack(at, *present),
            Received::Publish(publish) => {
                slot.to_do.push_back(received.clone());
                let receive_maximum = slot.fields.map_or(0, |fields| fields.receive_maximum);
                self.check_publish(name, publish, receive_maximum);
            }
            Received::PubAck(id, _) => {
                // The requests of one write are acknowledged in order.
                if let Some((first, number)) =
                    slot.requests.front().copied().filter(|one| one.0 == *id)
                {
                    assert_eq!(first, *id);
                    slot.requests.pop_front();
                    set_must(self.for_host.entry(name).or_default(), number, true);
                }
            }
            Received::PubRec(_, reason) if !reason.is_error() => {
                slot.to_do.push_back(received.clone())
            }
            Received::PubRel(id, Reason::SUCCESS) => {
                slot.to_do.push_back(received.clone());
                let session = self.naive.session(name);
                if !session.is_unchecked {
                    let flight = session.in_flight.get_mut(id).expect("an identifier in use");
                    assert!(flight.is_released, "PUBREL before PUBREC");
                    flight.is_here = true;
                }
            }
            _ => {}
        }
    }

    fn check_publish(
        &mut self,
        name: &'static str,
        received: &wire::Publish,
        receive_maximum: usize,
    ) {
        let number = self.number(&received.payload);
        let now = received.begun_at;
        let session = self.naive.session(name);
        if session.is_unchecked {
            return;
        }
        assert_eq!(received.id > 0, received.qos > Qos::AtMostOnce);
        assert!(session.is_connected, "{name} is disconnected");
        // The client has not seen the number and the packet identifier of an incomplete message.
        let is_known = session.in_flight.contains_key(&received.id);
        let is_again = received.dup && (is_known || !std::mem::take(&mut session.was_cut));
        if is_again {
            let flight = session.in_flight.get_mut(&received.id).expect("a redelivered message");
            assert_eq!((flight.number, flight.is_here), (number, false), "redelivered once");
            assert!(!flight.is_released, "redelivered after PUBREC");
            flight.is_here = true;
        } else if received.id > 0 {
            let flight = Flight {
                number,
                size: received.len,
                is_here: true,
                is_released: false,
                may_be_dropped: false,
            };
            let before = session.in_flight.insert(received.id, flight);
            let is_free = before
                .as_ref()
                .is_none_or(|one| one.may_be_dropped && !one.is_here && !one.is_released);
            assert!(is_free, "packet id {} is in use: {before:?}", received.id);
        }
        let here = session.in_flight.values().filter(|one| one.is_here).count();
        assert!(
            here <= receive_maximum.min(usize::from(self.limits.in_flight)),
            "{here} in flight"
        );
        let Some(number) = number else {
            let topic = &received.topic;
            let filters = &session.filters;
            let is_wanted = filters.iter().any(|filter| naive::matches(filter, topic));
            assert!(is_wanted, "{topic} is for another client");
            return;
        };
        if !is_again {
            self.check_message(name, number, Some(received), now);
        }
    }

    /// Checks a message for this client.
    pub(super) fn check_message(
        &mut self,
        name: &'static str,
        number: u64,
        received: Option<&wire::Publish>,
        now: Duration,
    ) {
        let session = self.naive.session(name);
        let key = (name, session.number);
        let group = |one: &naive::Shared| one.number == number && one.members.contains(&key);
        let (mut has_group, mut is_open) = (false, false);
        for one in self.naive.shared.iter_mut().filter(|one| group(one)) {
            // It is unknown through which of several groups the message came.
            one.must = false;
            (has_group, is_open) = (true, is_open || !one.is_taken);
        }
        let wanted = |one: &Expected| {
            let is_it = |received: &wire::Publish| {
                // Several retained copies differ by their subscription.
                has_group
                    || received.retain == one.retain
                        && (!received.retain
                            || (received.qos, &received.subscription_ids) == (one.qos, &one.ids))
            };
            one.sent.number == number && received.is_none_or(is_it)
        };
        let session = self.naive.session(name);
        let at = session.expected.iter().position(wanted);
        let one = at.map(|at| session.expected.remove(at));
        // A local client does not see through which subscription a message came.
        is_open &= !session.replayed.iter().any(|(_, one)| one.sent.number == number && one.must);
        if let Some(one) = &one {
            check_expected(one, received, has_group, now);
        } else if received.is_some_and(|received| !received.retain) || received.is_none() && is_open
        {
            let group = self.naive.shared.iter_mut().find(|one| group(one) && !one.is_taken);
            let group = group.unwrap_or_else(|| panic!("message {number} is not for {name}"));
            group.is_taken = true;
        } else {
            self.check_retained(name, number);
            return;
        }
        // A local client does not see the retain flag.
        let is_live = match received {
            Some(received) => !received.retain,
            None => !self.naive.once_retained.contains_key(&number),
        };
        if is_live {
            let session = self.naive.session(name);
            assert!(session.last < number, "{number} after {}", session.last);
            session.last = number;
        }
    }

    /// Checks a retained message that was sent to a new subscription.
    fn check_retained(&mut self, name: &'static str, number: u64) {
        let topic = self.naive.once_retained.get(&number).copied();
        let topic = topic.unwrap_or_else(|| panic!("message {number} was not retained"));
        let session = self.naive.session(name);
        let all = &mut session.replayed;
        let same = |one: &(&str, Expected)| one.1.sent.number == number;
        let at = all.iter().position(|one| same(one) && one.1.must);
        if let Some(at) = at.or_else(|| all.iter().position(same)) {
            all.remove(at);
        } else {
            let is_wanted = session.filters.iter().any(|filter| naive::matches(filter, topic));
            assert!(is_wanted, "{topic} is for another client");
        }
    }

    /// Acknowledges the first packets that wait for an acknowledgement.
    pub(super) fn acknowledge(&mut self, at: usize, count: usize) {
        for _ in 0..count % 32 + 1 {
            let Some(name) = self.ready_client(at) else { return };
            let Some(slot) = &mut self.slots[at] else { return };
            let Some(received) = slot.to_do.pop_front() else { return };
            let ack = |id: u16| Ack {
                id: NonZeroU16::new(id).expect("a packet id"),
                reason: Reason::SUCCESS,
                properties: &[][..],
            };
            match received {
                Received::Publish(publish) if publish.qos == Qos::AtLeastOnce => {
                    self.naive.session(name).in_flight.remove(&publish.id);
                    self.write(at, &Packet::PubAck(ack(publish.id)), 0);
                }
                Received::Publish(publish) if publish.qos == Qos::ExactlyOnce => {
                    let session = self.naive.session(name);
                    if let Some(flight) = session.in_flight.get_mut(&publish.id) {
                        flight.is_released = true;
                    }
                    self.write(at, &Packet::PubRec(ack(publish.id)), 0);
                }
                Received::PubRec(id, _) => {
                    self.naive.session(name).received.remove(&id);
                    self.write(at, &Packet::PubRel(ack(id)), 0);
                }
                Received::PubRel(id, _) => {
                    self.naive.session(name).in_flight.remove(&id);
                    self.write(at, &Packet::PubComp(ack(id)), 0);
                }
                _ => {}
            }
        }
    }

    /// Reads from the connections that the broker wakes: the output of one poll, or all output.
    pub(super) fn wakes(&mut self, all: bool) {
        let mut woken = BTreeSet::new();
        while let Some(wake) = self.broker.poll_wake() {
            if let Wake::Connection(id) = wake {
                assert!(woken.insert(id), "{id:?} is woken twice");
            }
        }
        self.ready.extend(woken);
        let ready = std::mem::take(&mut self.ready);
        for id in ready {
            let at = self.slots.iter().position(|slot| slot.as_ref().is_some_and(|s| s.id == id));
            if let Some(at) = at {
                self.read(at, if all { PIECES_MAX } else { 1 });
            }
        }
    }
}

/// Checks the fields of a received message.
fn check_expected(
    one: &Expected,
    received: Option<&wire::Publish>,
    has_group: bool,
    now: Duration,
) {
    assert!(one.sent.expires.is_none_or(|at| now < at), "{one:?} is late");
    let Some(received) = received else { return };
    assert_eq!(received.topic, one.sent.topic);
    assert!(
        received.qos >= one.qos && (received.qos == one.qos || has_group),
        "{received:?}, not {one:?}"
    );
    assert!(received.subscription_ids == one.ids || has_group, "{received:?}, not {one:?}");
    let left = one.sent.expires.map(|at| at.saturating_sub(now));
    let left = left.map(|left| left.as_secs() + u64::from(left.subsec_nanos() > 0));
    assert_eq!(received.expiry.map(u64::from), left);
    assert!(received.len <= one.sent.size, "{} bytes, at most {}", received.len, one.sent.size);
}
