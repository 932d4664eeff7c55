//! A client without a state machine.

use statestore_tokio::{LinkError, LinkEvent};

use crate::connection::Connection;
use crate::message::Message;

/// A client of a [`Hub`](crate::Hub) that sends and receives any messages. It disconnects when
/// dropped.
#[derive(Debug)]
pub struct RawClient {
    connection: Connection,
}

impl RawClient {
    pub(crate) const fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// Subscribes to a topic filter at QoS 1, without waiting.
    pub fn subscribe(&self, filter: &str) {
        self.connection.subscribe(filter);
    }

    /// Publishes a message. The broker replaces its sender by the id of this client.
    pub fn publish(&self, message: Message) {
        self.connection.publish(&message.packet());
    }

    /// Waits for the next message. Cancel safe.
    ///
    /// # Errors
    /// [`LinkError`] if the connection is closed.
    pub async fn next(&self) -> Result<Message, LinkError> {
        loop {
            if let LinkEvent::Message(message) = self.connection.next_event(true).await? {
                return Ok(message);
            }
        }
    }
}
