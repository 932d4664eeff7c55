//! What comes to a client: whether it was for it, and how it is answered.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::BytesMut;
use statestore_broker::{Output, Wake};
use statestore_mqtt::packet::{Ack, Packet};
use statestore_mqtt::{Qos, Reason};

use super::naive::{self, Expected, Flight};
use super::run::{Run, set_must};
use super::wire::{self, Heard};

impl Run {
    /// Reads what a connection has, in so many pieces at most.
    pub(super) fn read(&mut self, at: usize, pieces: usize) -> Vec<Heard> {
        let Some(id) = self.slots[at].as_ref().map(|slot| slot.id) else { return Vec::new() };
        let mut all = Vec::new();
        for _ in 0..pieces {
            let mut out = BytesMut::new();
            let output = self.broker.poll_output(self.now, id, &mut out);
            assert!(output != Output::More || !out.is_empty(), "more, and nothing of it");
            let slot = self.slots[at].as_mut().expect("still there");
            let heard = slot.ear.hear(&out);
            for one in heard {
                self.hear(at, &one);
                all.push(one);
            }
            if output == Output::More {
                self.ready.insert(id);
                continue;
            }
            self.ready.remove(&id);
            if output == Output::Close {
                if let Some(slot) = &self.slots[at] {
                    slot.ear.end();
                }
                assert!(self.broker.is_closing(id));
            }
            break;
        }
        all
    }

    /// Checks one packet that a connection was sent.
    fn hear(&mut self, at: usize, heard: &Heard) {
        let Some(slot) = &mut self.slots[at] else { return };
        if slot.is_wild {
            return;
        }
        let Some(name) = slot.name else { return };
        match heard {
            Heard::ConnAck(present, Reason::SUCCESS) => self.connected(at, *present),
            Heard::Publish(publish) => {
                slot.to_do.push_back(heard.clone());
                let receive_maximum = slot.hello.map_or(0, |hello| hello.receive_maximum);
                self.hear_publish(name, publish, receive_maximum);
            }
            Heard::PubAck(id, _) => {
                // Requests in one piece are acknowledged in order.
                if let Some((first, number)) =
                    slot.asked.front().copied().filter(|one| one.0 == *id)
                {
                    assert_eq!(first, *id);
                    slot.asked.pop_front();
                    set_must(self.for_host.entry(name).or_default(), number, true);
                }
            }
            Heard::PubRec(_, reason) if !reason.is_error() => slot.to_do.push_back(heard.clone()),
            Heard::PubRel(id, Reason::SUCCESS) => {
                slot.to_do.push_back(heard.clone());
                let session = self.naive.session(name);
                if !session.is_wild {
                    let flight = session.in_flight.get_mut(id).expect("it was given out");
                    assert!(flight.is_released, "PUBREL before PUBREC");
                    flight.is_here = true;
                }
            }
            _ => {}
        }
    }

    fn hear_publish(&mut self, name: &'static str, heard: &wire::Publish, receive_maximum: usize) {
        let number = self.number(&heard.payload);
        let now = self.now;
        let session = self.naive.session(name);
        if session.is_wild {
            return;
        }
        assert_eq!(heard.id > 0, heard.qos > Qos::AtMostOnce);
        assert!(session.is_connected, "{name} has gone");
        if heard.dup {
            let flight = session.in_flight.get_mut(&heard.id).expect("it was sent before");
            assert_eq!((flight.number, flight.is_here), (number, false), "again, and once");
            assert!(!flight.is_released, "again after PUBREC");
            flight.is_here = true;
        } else if heard.id > 0 {
            let flight = Flight {
                number,
                size: heard.len,
                is_here: true,
                is_released: false,
                may_be_dropped: false,
            };
            let before = session.in_flight.insert(heard.id, flight);
            let is_free = before
                .as_ref()
                .is_none_or(|one| one.may_be_dropped && !one.is_here && !one.is_released);
            assert!(is_free, "packet id {} is in use: {before:?}", heard.id);
        }
        let here = session.in_flight.values().filter(|one| one.is_here).count();
        assert!(
            here <= receive_maximum.min(usize::from(self.limits.in_flight)),
            "{here} at a time"
        );
        let Some(number) = number else {
            let topic = &heard.topic;
            let filters = &session.filters;
            let is_wanted = filters.iter().any(|filter| naive::matches(filter, topic));
            assert!(is_wanted, "{topic} is for another client");
            return;
        };
        if !heard.dup {
            self.received(name, number, Some(heard), now);
        }
    }

    /// A message came to whom it was for.
    pub(super) fn received(
        &mut self,
        name: &'static str,
        number: u64,
        heard: Option<&wire::Publish>,
        now: Duration,
    ) {
        let session = self.naive.session(name);
        let key = (name, session.number);
        let group = |one: &naive::Shared| one.number == number && one.members.contains(&key);
        let (mut has_group, mut is_open) = (false, false);
        for one in self.naive.shared.iter_mut().filter(|one| group(one)) {
            // By which of several it came is not to be told.
            one.must = false;
            (has_group, is_open) = (true, is_open || !one.is_taken);
        }
        let wanted = |one: &Expected| {
            let is_it = |heard: &wire::Publish| {
                // One that was retained is told apart by what it came for.
                has_group
                    || heard.retain == one.retain
                        && (!heard.retain
                            || (heard.qos, &heard.subscription_ids) == (one.qos, &one.ids))
            };
            one.sent.number == number && heard.is_none_or(is_it)
        };
        let session = self.naive.session(name);
        let at = session.expected.iter().position(wanted);
        let one = at.map(|at| session.expected.remove(at));
        // A client in the process is not told by which way it came.
        is_open &= !session.replayed.iter().any(|(_, one)| one.sent.number == number && one.must);
        if let Some(one) = &one {
            check_expected(one, heard, has_group, now);
        } else if heard.is_some_and(|heard| !heard.retain) || heard.is_none() && is_open {
            let group = self.naive.shared.iter_mut().find(|one| group(one) && !one.is_taken);
            let group = group.unwrap_or_else(|| panic!("message {number} is not for {name}"));
            group.is_taken = true;
        } else {
            self.replayed(name, number);
            return;
        }
        // A client in the process is not told which of them were retained.
        let is_live = match heard {
            Some(heard) => !heard.retain,
            None => !self.naive.once_retained.contains_key(&number),
        };
        if is_live {
            let session = self.naive.session(name);
            assert!(session.last < number, "{number} after {}", session.last);
            session.last = number;
        }
    }

    /// A retained message came.
    fn replayed(&mut self, name: &'static str, number: u64) {
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

    /// Answers the first of what it was sent.
    pub(super) fn acknowledge(&mut self, at: usize, count: usize) {
        for _ in 0..count % 32 + 1 {
            let Some(name) = self.neat(at) else { return };
            let Some(slot) = &mut self.slots[at] else { return };
            let Some(heard) = slot.to_do.pop_front() else { return };
            let ack = |id: u16| Ack {
                id: NonZeroU16::new(id).expect("a packet id"),
                reason: Reason::SUCCESS,
                properties: &[][..],
            };
            match heard {
                Heard::Publish(publish) if publish.qos == Qos::AtLeastOnce => {
                    self.naive.session(name).in_flight.remove(&publish.id);
                    self.write(at, &Packet::PubAck(ack(publish.id)), 0);
                }
                Heard::Publish(publish) if publish.qos == Qos::ExactlyOnce => {
                    let session = self.naive.session(name);
                    if let Some(flight) = session.in_flight.get_mut(&publish.id) {
                        flight.is_released = true;
                    }
                    self.write(at, &Packet::PubRec(ack(publish.id)), 0);
                }
                Heard::PubRec(id, _) => {
                    self.naive.session(name).received.remove(&id);
                    self.write(at, &Packet::PubRel(ack(id)), 0);
                }
                Heard::PubRel(id, _) => {
                    self.naive.session(name).in_flight.remove(&id);
                    self.write(at, &Packet::PubComp(ack(id)), 0);
                }
                _ => {}
            }
        }
    }

    /// Those who are woken read: one piece, or all there is.
    pub(super) fn wakes(&mut self, all: bool) {
        let mut told = BTreeSet::new();
        while let Some(wake) = self.broker.poll_wake() {
            if let Wake::Connection(id) = wake {
                assert!(told.insert(id), "{id:?} is woken twice");
            }
        }
        self.ready.extend(told);
        let ready = std::mem::take(&mut self.ready);
        for id in ready {
            let at = self.slots.iter().position(|slot| slot.as_ref().is_some_and(|s| s.id == id));
            if let Some(at) = at {
                self.read(at, if all { 1_000 } else { 1 });
            }
        }
    }
}

/// A message as it was to come.
fn check_expected(one: &Expected, heard: Option<&wire::Publish>, has_group: bool, now: Duration) {
    assert!(one.sent.expires.is_none_or(|at| now < at), "{one:?} is late");
    let Some(heard) = heard else { return };
    assert_eq!(heard.topic, one.sent.topic);
    assert!(heard.qos >= one.qos && (heard.qos == one.qos || has_group), "{heard:?}, not {one:?}");
    assert!(heard.subscription_ids == one.ids || has_group, "{heard:?}, not {one:?}");
    let left = one.sent.expires.map(|at| at.saturating_sub(now));
    let left = left.map(|left| left.as_secs() + u64::from(left.subsec_nanos() > 0));
    assert_eq!(heard.expiry.map(u64::from), left);
    assert!(heard.len <= one.sent.size, "{} bytes, at most {}", heard.len, one.sent.size);
}
