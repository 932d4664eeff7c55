//! The link for the handles of `statestore-tokio`.

use std::sync::Arc;

use statestore_proto::transport::{Incoming, Transmit};
use statestore_tokio::{AsIncoming, Connected, Link, LinkError, LinkErrorKind, LinkEvent};

use crate::connection::{Connection, Shared};
use crate::message::Message;

/// A [`Link`] to a [`Hub`](crate::Hub).
#[derive(Debug)]
pub struct HubLink {
    shared: Shared,
    client_id: Arc<str>,
    is_store: bool,
    connection: Option<Connection>,
}

impl HubLink {
    pub(crate) fn new(shared: Shared, client_id: &str, is_store: bool) -> Self {
        Self { shared, client_id: client_id.into(), is_store, connection: None }
    }
}

impl Link for HubLink {
    type Message = Message;

    fn client_id(&self) -> &str {
        &self.client_id
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.connection = None;
        self.connection = Some(self.shared.connect(&self.client_id, self.is_store)?);
        Ok(Connected::default())
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        // Without a connection the packet is lost, and `next_event` reports that.
        if let Some(connection) = &self.connection {
            connection.send(transmit);
        }
        Ok(())
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        let Some(connection) = &self.connection else {
            return Err(LinkError::new(LinkErrorKind::NotConnected, "not connected"));
        };
        let event = connection.next_event(messages).await;
        if event.is_err() {
            self.connection = None;
        }
        event
    }

    async fn disconnect(&mut self) {
        self.connection = None;
    }
}

impl AsIncoming for Message {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        Some(Self::as_incoming(self))
    }
}
