//! The link: sessions of the router, one after the other.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use statestore_proto::mqtt::Transmit;
use statestore_tokio::{Connected, Link, LinkError, LinkEvent};
use tracing::debug;

use crate::access::STORE;
use crate::broker::{Broker, Running, Shared};
use crate::convert::Message;
use crate::outgoing::dispatch;
use crate::session::Session;
use crate::store_route;

/// How long a goodbye may take.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// Results that may wait to be taken.
const RESULTS_MAX: usize = 256;

/// What is being done, with what there is to report.
type Sending = Pin<Box<dyn Future<Output = Option<LinkEvent<Message>>> + Send>>;

/// A [`Link`] to a [`Broker`](crate::Broker) in this process, without a network in between.
pub struct EmbeddedLink {
    shared: Arc<Shared>,
    client_id: Arc<str>,
    connection: Option<Connection>,
}

struct Connection {
    running: Arc<Running>,
    session: Session,
    results: VecDeque<LinkEvent<Message>>,
    sending: Option<Sending>,
}

impl Broker {
    /// A link for a store. There is one store; another one takes its place.
    #[must_use]
    pub fn store_link(&self) -> EmbeddedLink {
        self.link(STORE)
    }

    /// A link for a client in this process.
    #[must_use]
    pub fn link(&self, client_id: &str) -> EmbeddedLink {
        EmbeddedLink {
            shared: Arc::clone(&self.shared),
            client_id: client_id.into(),
            connection: None,
        }
    }
}

impl Link for EmbeddedLink {
    type Message = Message;

    fn client_id(&self) -> &str {
        &self.client_id
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        if let Some(Connection { session, .. }) = self.connection.take() {
            let missed = session.close().await;
            missed.into_iter().for_each(|client_id| self.shared.store_route.missed(client_id));
        }
        let running = self.shared.running()?;
        let (session, gone) = Session::open(&running, &self.client_id).await;
        let results = gone.into_iter().map(LinkEvent::ClientGone).collect();
        self.connection = Some(Connection { running, session, results, sending: None });
        Ok(Connected { session_present: false })
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        // Without a connection there is nothing to wait for: `next` says so.
        let Some(connection) = &mut self.connection else { return Ok(()) };
        if connection.sending.is_some() || connection.results.len() > RESULTS_MAX {
            return Err(transmit);
        }
        let running = Arc::clone(&connection.running);
        let mut sending: Sending =
            Box::pin(dispatch(running, Arc::clone(&self.client_id), transmit));
        // It hardly ever has to wait. When it does, `next` goes on with it.
        match sending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => connection.results.extend(result),
            Poll::Pending => connection.sending = Some(sending),
        }
        Ok(())
    }

    async fn next(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        let is_store = &*self.client_id == STORE;
        let Some(connection) = &mut self.connection else {
            return Err(LinkError::transient("not connected"));
        };
        if let Some(sending) = &mut connection.sending {
            let result = sending.await;
            connection.sending = None;
            connection.results.extend(result);
            return Ok(connection.results.pop_front().unwrap_or(LinkEvent::Writable));
        }
        if let Some(result) = connection.results.pop_front() {
            return Ok(result);
        }
        loop {
            let arrived = connection.session.next(messages).await?;
            if let Some(client_id) = store_route::gone(&arrived) {
                return Ok(LinkEvent::ClientGone(client_id));
            }
            let message = Message::new(arrived.publish);
            // Only what a client sent is a request; the broker says whose it is.
            if !is_store || message.sender().is_some() {
                return Ok(LinkEvent::Message(message));
            }
            debug!("a message that no client sent was dropped");
        }
    }

    async fn disconnect(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if let Some(sending) = connection.sending {
            let _ = tokio::time::timeout(GOODBYE_MAX, sending).await;
        }
    }
}

impl fmt::Debug for EmbeddedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLink").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}
