//! Received messages: replies, notifications, and messages that are neither.

use super::watch::{Input, State};
use super::{Client, Event, Outcome, Owner, RequestId, Unmatched, parse_correlation};
use crate::hlc::{HlcRef, Version};
use crate::message::property::REASON_BYTES_MAX;
use crate::message::{Incarnation, Notification, Reply, Response};
use crate::time::Now;
use crate::topic::ParsedNotificationTopic;
use crate::transport::Incoming;

impl Client {
    pub(super) fn handle_publish(&mut self, now: Now, incoming: &Incoming<'_>) {
        self.now = now;
        let notification = ParsedNotificationTopic::parse(incoming.topic)
            .filter(|topic| topic.is_for(&self.config.client_id));
        let handled = if incoming.retain {
            // Stores never retain replies or notifications.
            Err(Unmatched::Topic)
        } else if *incoming.topic == *self.config.response_topic {
            self.handle_reply(now, incoming)
        } else if let Some(topic) = notification {
            self.handle_notification(now, &topic.key(), incoming)
        } else {
            Err(Unmatched::Topic)
        };
        if let Err(unmatched) = handled {
            self.events.try_push(Event::Unmatched(unmatched));
        }
    }

    fn handle_reply(&mut self, now: Now, incoming: &Incoming<'_>) -> Result<(), Unmatched> {
        let data = incoming.correlation_data;
        let id = data.and_then(|data| parse_correlation(self.config.nonce, data));
        let id = id.ok_or(Unmatched::ForeignReply)?;
        let kind = self.requests.get_sent(id).ok_or(Unmatched::Reply(RequestId(id)))?.kind;
        let incarnation = incoming.incarnation();
        self.observe_incarnation(incarnation);
        let version = self.merge_version(now, incoming);
        let outcome = match Response::decode(incoming.payload, kind) {
            Ok(response) => {
                let response = response.map(|slice| incoming.payload.slice_ref(slice));
                Outcome::Responded { response, version, incarnation }
            }
            Err(error) => Outcome::Malformed(error),
        };
        self.report_explanation(id, incoming, &outcome);
        self.complete(id, outcome);
        Ok(())
    }

    /// Reports why the store refused a request of the application, if the reply contains a reason.
    fn report_explanation(&mut self, id: u64, incoming: &Incoming<'_>, outcome: &Outcome) {
        let Some(reason) = incoming.properties.reason else { return };
        let is_refused = matches!(
            outcome,
            Outcome::Responded { response: Response::Reply(Reply::Error(_)), .. }
        );
        let pending = self.requests.get(id);
        if is_refused && pending.is_some_and(|pending| pending.owner == Owner::Application) {
            let reason = truncate(reason, REASON_BYTES_MAX).into();
            self.events.try_push(Event::Explained { id: RequestId(id), reason });
        }
    }

    fn handle_notification(
        &mut self,
        now: Now,
        key: &[u8],
        incoming: &Incoming<'_>,
    ) -> Result<(), Unmatched> {
        if let incarnation @ Some(_) = incoming.incarnation() {
            self.observe_incarnation(incarnation);
        }
        let id = self.watches.find_by_key(key).ok_or(Unmatched::Notification)?;
        let notification =
            Notification::decode(incoming.payload).map_err(Unmatched::MalformedNotification)?;
        // Without a version it is unknown whether the notification is newer than the known state.
        let version = self.merge_version(now, incoming).ok_or(Unmatched::Notification)?;
        let (state, value) = match notification {
            Notification::Set(value) => {
                (State::Present(version), Some(incoming.payload.slice_ref(value)))
            }
            Notification::Deleted => (State::Absent(Some(version)), None),
        };
        let is_new = self.step_watch(id, Input::Notification(state, value));
        is_new.then_some(()).ok_or(Unmatched::Notification)
    }

    /// Records the store that a message comes from, before the message is used: after a replacement
    /// nothing reported earlier is current. A reply without an incarnation is from a store without
    /// one, since every request asks for it.
    fn observe_incarnation(&mut self, incarnation: Option<Incarnation>) {
        let last = self.last_incarnation.replace(incarnation);
        if last.is_some_and(|last| last != incarnation) {
            self.report_store_replaced(incarnation);
            self.restart_watches();
        }
    }

    /// Returns the version of a message after merging it into the clock. If the version is too far
    /// ahead, the clock stays as it is and the drift is reported.
    fn merge_version(&mut self, now: Now, incoming: &Incoming<'_>) -> Option<Version> {
        let hlc = HlcRef::parse(incoming.properties.timestamp?).ok()?;
        self.clock.restart_if_ahead(now.unix);
        if let Err(drift) = self.clock.receive(now.unix, hlc) {
            self.events.try_push(Event::ClockDrift(drift));
        }
        Some(Version::new(hlc.into()))
    }
}

/// The longest beginning of `text` of at most `max` bytes that ends between characters.
fn truncate(text: &str, max: usize) -> &str {
    let mut ends = (0..=text.len().min(max)).rev();
    let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}
