//! What arrives: replies, notifications, and messages that are neither.

use super::watch::State;
use super::{Client, Event, Outcome, Owner, RequestId, Stale, correlated};
use crate::hlc::{HlcRef, Version};
use crate::message::property::REASON_BYTES_MAX;
use crate::message::{CommandKind, Incarnation, Notification, Reply, ScanReply};
use crate::mqtt::Incoming;
use crate::time::Now;
use crate::topic::ReceivedTopic;

impl Client {
    /// Handles a received PUBLISH, whatever it is. A message that cannot be read affects at most the request it answers.
    pub fn handle_publish(&mut self, now: Now, incoming: &Incoming<'_>) {
        self.now = now;
        let notification = ReceivedTopic::parse(incoming.topic)
            .filter(|topic| topic.is_for(&self.config.client_id));
        let stale = if incoming.retain {
            // Neither replies nor notifications are ever retained: it answers nothing that was asked now.
            Err(Stale::Topic)
        } else if *incoming.topic == *self.config.response_topic {
            self.take_reply(now, incoming)
        } else if let Some(topic) = notification {
            self.take_notification(now, &topic.key(), incoming)
        } else {
            Err(Stale::Topic)
        };
        if let Err(stale) = stale {
            self.tell_if_room(Event::Stale(stale));
        }
    }

    fn take_reply(&mut self, now: Now, incoming: &Incoming<'_>) -> Result<(), Stale> {
        let id = incoming.correlation_data.and_then(|data| correlated(self.config.nonce, data));
        let id = id.ok_or(Stale::StrangersReply)?;
        let pending = self.pending.get(&id).filter(|pending| pending.sent);
        let kind = pending.ok_or(Stale::Reply(RequestId(id)))?.kind;
        let incarnation = incoming.incarnation();
        self.meet(incarnation);
        let version = self.merge(now, incoming);
        let keep = |slice| incoming.payload.slice_ref(slice);
        let replied = |reply| Outcome::Replied { reply, version, incarnation };
        let outcome = if kind == CommandKind::Scan {
            ScanReply::decode(incoming.payload).map(|reply| match reply {
                ScanReply::Page(page) => Outcome::Listed { page: page.map(keep), incarnation },
                ScanReply::Error(error) => replied(Reply::Error(error.map(keep))),
            })
        } else {
            Reply::decode(incoming.payload, kind).map(|reply| replied(reply.map(keep)))
        };
        let outcome = outcome.unwrap_or_else(Outcome::Malformed);
        self.explain(id, incoming, &outcome);
        self.finish(id, outcome);
        Ok(())
    }

    /// Passes on why a request of the application was refused, where the reply says that.
    fn explain(&mut self, id: u64, incoming: &Incoming<'_>, outcome: &Outcome) {
        let is_refused = matches!(outcome, Outcome::Replied { reply: Reply::Error(_), .. });
        let is_own =
            || self.pending.get(&id).is_some_and(|pending| pending.owner == Owner::Application);
        if let Some(reason) = incoming.reason().filter(|_| is_refused && is_own()) {
            let ends = 0..=reason.len().min(REASON_BYTES_MAX);
            let end = ends.rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
            let reason = reason.get(..end).unwrap_or_default().into();
            self.tell_if_room(Event::Explained { id: RequestId(id), reason });
        }
    }

    fn take_notification(
        &mut self,
        now: Now,
        key: &[u8],
        incoming: &Incoming<'_>,
    ) -> Result<(), Stale> {
        if let said @ Some(_) = incoming.incarnation() {
            self.meet(said);
        }
        let id = self.watches.of_key(key).ok_or(Stale::Notification)?;
        let notification =
            Notification::decode(incoming.payload).map_err(Stale::MalformedNotification)?;
        // Without a version there is no telling whether it is news.
        let version = self.merge(now, incoming).ok_or(Stale::Notification)?;
        let (state, value) = match notification {
            Notification::Set(value) => {
                (State::Present(version), Some(incoming.payload.slice_ref(value)))
            }
            Notification::Deleted => (State::Absent(Some(version)), None),
        };
        self.hear(id, state, value)
    }

    /// Records which store a message comes from, before the message is used: if it is another than before, nothing may be
    /// told as current any more. A reply without an incarnation is from a store that has none, since every request asks.
    fn meet(&mut self, incarnation: Option<Incarnation>) {
        let before = self.met.replace(incarnation);
        if before.is_some_and(|before| before != incarnation) {
            self.tell_replacement(incarnation);
            self.restart_watches();
        }
    }

    /// The version that came with a message, merged into the clock. A drift is told and costs nothing else.
    fn merge(&mut self, now: Now, incoming: &Incoming<'_>) -> Option<Version> {
        let hlc = HlcRef::parse(incoming.properties.timestamp?).ok()?;
        if let Err(drift) = self.clock.receive(now.unix, hlc) {
            self.tell_if_room(Event::ClockDrift(drift));
        }
        Some(Version::new(hlc.into()))
    }
}
