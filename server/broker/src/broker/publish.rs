//! PUBLISH packets, and the access control of messages.

use alloc::sync::Arc;
use core::time::Duration;

use super::Broker;
use crate::config::Acl;
use crate::ids::{ConnectionId, SessionId};
use crate::incidents::{IncidentKind, IncidentRef};
use crate::message::Message;
use statestore_mqtt::Qos;
use statestore_mqtt::Reason;
use statestore_mqtt::packet::{Ack, Packet, Publish};
use statestore_mqtt::property::{Encode, Properties, Property, id};

impl Broker {
    pub(super) fn handle_publish(
        &mut self,
        now: Duration,
        id: ConnectionId,
        session_id: SessionId,
        publish: &Publish<'_>,
    ) {
        self.stats.published += 1;
        let aliased = match self.resolve_alias(id, publish) {
            Ok(aliased) => aliased,
            Err(reason) => return self.disconnect_for_violation(now, id, Some(reason), None),
        };
        let topic = aliased.as_deref().unwrap_or(publish.topic);
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        if let Some(packet_id) = publish.id.filter(|_| publish.qos == Qos::ExactlyOnce) {
            if session.received.contains(&packet_id) {
                let ack = Ack { id: packet_id, reason: Reason::SUCCESS, properties: () };
                return self.send_packet(id, &Packet::PubRec(ack));
            }
            if session.received.len() >= usize::from(self.config.limits.receive_maximum.max(1)) {
                return self.disconnect_for_violation(
                    now,
                    id,
                    Some(Reason::RECEIVE_MAXIMUM_EXCEEDED),
                    None,
                );
            }
        }
        let reason = match session.try_count_publish(now, self.config.limits.messages_per_second) {
            true => self.publish(now, session_id, topic, publish),
            false => {
                let (kind, reason) = (IncidentKind::Rate, Reason::QUOTA_EXCEEDED);
                let incident = IncidentRef::about(kind, &session.client_id, topic, Some(reason));
                self.incidents.push(IncidentRef { connection: Some(id), ..incident });
                reason
            }
        };
        let Some(packet_id) = publish.id else { return };
        let ack = Ack { id: packet_id, reason, properties: () };
        if publish.qos == Qos::AtLeastOnce {
            return self.send_packet(id, &Packet::PubAck(ack));
        }
        if let Some(session) = self.sessions.get_mut(session_id).filter(|_| !reason.is_error()) {
            session.insert_received(&mut self.memory, packet_id);
        }
        self.send_packet(id, &Packet::PubRec(ack));
    }

    /// Returns the topic that the topic alias of a PUBLISH stands for, or `None` if the PUBLISH
    /// contains its topic. Records a new alias.
    ///
    /// # Errors
    /// The reason if the PUBLISH violates the protocol.
    fn resolve_alias(
        &mut self,
        id: ConnectionId,
        publish: &Publish<'_>,
    ) -> Result<Option<Arc<str>>, Reason> {
        // Only the broker sets subscription identifiers.
        if publish.properties.has(id::SUBSCRIPTION) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        let Some(Property::TopicAlias(alias)) = publish.properties.first(id::TOPIC_ALIAS) else {
            return Ok(None);
        };
        if alias > self.config.limits.topic_aliases {
            return Err(Reason::TOPIC_ALIAS_INVALID);
        }
        let Some(connection) = self.connections.get_mut(id) else { return Ok(None) };
        if publish.topic.is_empty() {
            let known = connection.inbound_aliases.get(&alias);
            return known.cloned().map(Some).ok_or(Reason::PROTOCOL_ERROR);
        }
        connection.set_alias(&mut self.memory, alias, publish.topic);
        Ok(None)
    }

    /// Publishes a message of a client, subject to its access control list.
    pub(super) fn publish<P: Encode>(
        &mut self,
        now: Duration,
        session_id: SessionId,
        topic: &str,
        publish: &Publish<'_, P>,
    ) -> Reason {
        let Some(session) = self.sessions.get(session_id) else {
            return Reason::UNSPECIFIED_ERROR;
        };
        let (acl, client_id) = (Arc::clone(&session.acl), Arc::clone(&session.client_id));
        let sender = session.sender();
        let Ok(message) = Message::new(now, Some(sender), topic, publish) else {
            return Reason::IMPLEMENTATION_SPECIFIC_ERROR;
        };
        let properties = message.properties();
        match self.may_publish(IncidentKind::Publish, &*acl, &client_id, topic, properties) {
            Ok(()) => self.route(now, &Arc::new(message), Some(&*acl)),
            Err(reason) => reason,
        }
    }

    /// Checks a message against the access control list, and records an incident if it is denied.
    pub(super) fn may_publish(
        &mut self,
        kind: IncidentKind,
        acl: &dyn Acl,
        client_id: &str,
        topic: &str,
        properties: Properties<'_>,
    ) -> Result<(), Reason> {
        let response_topic = match properties.first(id::RESPONSE_TOPIC) {
            Some(Property::ResponseTopic(topic)) => Some(topic),
            _ => None,
        };
        let result = if has_more_levels(topic, self.config.limits.levels) {
            Err(Reason::TOPIC_NAME_INVALID)
        } else {
            let allowed = acl.may_publish(client_id, topic, response_topic);
            allowed.inspect_err(|_| self.stats.denied += 1)
        };
        result.inspect_err(|reason| {
            let incident = IncidentRef::about(kind, client_id, topic, Some(*reason));
            self.incidents.push(IncidentRef { response_topic, ..incident });
        })
    }
}

/// Returns whether a topic has more than `max` levels.
fn has_more_levels(topic: &str, max: usize) -> bool {
    // A topic with `max` separators has at least as many bytes.
    topic.len() >= max && topic.bytes().filter(|byte| *byte == b'/').count() >= max
}
