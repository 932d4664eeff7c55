//! A link of one of two kinds, for stages whose clients and stores have different links.

use statestore_proto::transport::{Incoming, Transmit};
use statestore_tokio::{AsIncoming, Connected, Link, LinkError, LinkEvent};

/// A link, or a message, of one of two kinds.
#[derive(Debug)]
pub enum Either<A, B> {
    /// The link of a client.
    Client(A),
    /// The link of a store.
    Store(B),
}

impl<A: AsIncoming, B: AsIncoming> AsIncoming for Either<A, B> {
    fn as_incoming(&self) -> Option<Incoming<'_>> {
        match self {
            Self::Client(message) => message.as_incoming(),
            Self::Store(message) => message.as_incoming(),
        }
    }

    fn received(&self) -> Option<tokio::time::Instant> {
        match self {
            Self::Client(message) => message.received(),
            Self::Store(message) => message.received(),
        }
    }
}

impl<A: Link, B: Link> Link for Either<A, B> {
    type Message = Either<A::Message, B::Message>;

    fn client_id(&self) -> &str {
        match self {
            Self::Client(link) => link.client_id(),
            Self::Store(link) => link.client_id(),
        }
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        match self {
            Self::Client(link) => link.connect().await,
            Self::Store(link) => link.connect().await,
        }
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        match self {
            Self::Client(link) => link.try_send(transmit),
            Self::Store(link) => link.try_send(transmit),
        }
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Self::Message>, LinkError> {
        Ok(match self {
            Self::Client(link) => map(link.next_event(messages).await?, Either::Client),
            Self::Store(link) => map(link.next_event(messages).await?, Either::Store),
        })
    }

    async fn disconnect(&mut self) {
        match self {
            Self::Client(link) => link.disconnect().await,
            Self::Store(link) => link.disconnect().await,
        }
    }
}

fn map<M, N>(event: LinkEvent<M>, wrap: impl FnOnce(M) -> N) -> LinkEvent<N> {
    match event {
        LinkEvent::Subscribed(token, reason) => LinkEvent::Subscribed(token, reason),
        LinkEvent::Published(token, reason) => LinkEvent::Published(token, reason),
        LinkEvent::Message(message) => LinkEvent::Message(wrap(message)),
        LinkEvent::ClientGone(client_id) => LinkEvent::ClientGone(client_id),
        LinkEvent::Writable => LinkEvent::Writable,
    }
}
