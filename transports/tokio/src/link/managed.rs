//! The [`Link`] that all MQTT libraries share.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;

use statestore_proto::transport::{Delivery, Qos, Transmit};
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::active::{Active, Received};
use super::address::Address;
use super::addresses::{Addresses, InUse};
use super::connector::{
    Connection, ConnectionEvent, Connector, Opening, Outgoing, ReceivedPublish,
};
use super::error::{LinkError, LinkErrorKind};
use super::options::Options;
use super::redelivery::Redelivery;
use super::takeover::Takeover;
use super::{AsIncoming, Connected, Link, LinkEvent};
use crate::diagnostics::mosquitto;

/// Number of connections lost in a row while claiming after which the claim is omitted: a broker
/// may close a connection because its access rules reject the claim. A single loss is probably
/// another store, which must not go unnoticed.
const LOST_CLAIMING_MAX: u8 = 2;

/// The future of a diagnosis.
pub type Diagnosis = Pin<Box<dyn Future<Output = LinkError> + Send>>;

type Diagnose = Box<dyn Fn(LinkError, Address) -> Diagnosis + Send + Sync>;

/// A [`Link`] over an MQTT library.
///
/// It opens connections with a [`Connector`] and does everything that does not depend on the
/// library:
///
/// * several addresses, each with a time-out;
/// * checks of topics, filters and packet sizes;
/// * manual acknowledgements in order, for stores;
/// * the claim of a store, so that of two stores with one client id the one started last serves;
/// * early acknowledgement of a message that is redelivered first on two connections in a row;
/// * messages of mosquitto's log about clients that have gone, with
///   [`Options::read_mosquitto_log`].
///
/// Queues: the connection bounds packets to send by [`Options::max_queued_packets`]. Messages that
/// arrive while a store claims are bounded by [`Options::receive_maximum`].
pub struct ManagedLink<C: Connector> {
    connector: C,
    options: Options,
    addresses: Addresses,
    manual_acks: bool,
    /// Applied until the first connection.
    diagnose: Option<Diagnose>,
    active: Option<Active<C::Connection>>,
    redelivery: Redelivery,
    /// Set for a store that claims.
    takeover: Option<Takeover>,
    /// Connections in a row that were lost while claiming.
    lost_claiming: u8,
    /// Whether a warning about credentials without TLS was logged.
    warned: bool,
    /// Requests to disconnect a client, which an ordinary client cannot fulfil.
    offenders: u64,
    /// Number of the last delivery. It identifies a message across connections.
    last_delivery: u64,
}

impl<C: Connector> ManagedLink<C> {
    /// A link for an application: a clean session, and messages are acknowledged on arrival.
    #[must_use]
    pub fn for_client(options: Options) -> Self
    where
        C: Default,
    {
        Self::for_client_with(options, C::default())
    }

    /// A link for a store: messages are acknowledged after they are answered if the library
    /// supports that, and the broker keeps the session for a while, so that unanswered requests are
    /// redelivered. The link ends when another store [takes over](Self::without_claim) the client
    /// id.
    #[must_use]
    pub fn for_store(options: Options) -> Self
    where
        C: Default,
    {
        Self::for_store_with(options, C::default())
    }

    /// As [`for_client`](Self::for_client), with this connector.
    #[must_use]
    pub fn for_client_with(options: Options, connector: C) -> Self {
        Self {
            connector,
            addresses: Addresses::new(&options),
            options,
            manual_acks: false,
            diagnose: None,
            active: None,
            redelivery: Redelivery::default(),
            takeover: None,
            lost_claiming: 0,
            warned: false,
            offenders: 0,
            last_delivery: 0,
        }
    }

    /// As [`for_store`](Self::for_store), with this connector.
    #[must_use]
    pub fn for_store_with(options: Options, connector: C) -> Self {
        let mut link = Self::for_client_with(options.or_store_defaults(), connector);
        link.manual_acks = C::MANUAL_ACKS;
        if !link.options.retry_after_takeover {
            link.takeover = Takeover::new(link.options.client_id.clone(), fastrand::u64(..));
        }
        link
    }

    /// Sets whether messages are acknowledged when the machine has handled them, in order of
    /// arrival, rather than on arrival. By default stores do so and clients do not. Ignored if the
    /// library does not [support](Connector::MANUAL_ACKS) it.
    ///
    /// A message that the broker redelivers first on two connections in a row is acknowledged on
    /// arrival: the broker may have closed the connection because of its response.
    ///
    /// With manual acknowledgements, the broker withholds messages beyond the [receive
    /// maximum](Options::receive_maximum). Without them, this side stops reading from the network
    /// until the machine has caught up. A store that is too busy for that loses its connection and
    /// the queued requests.
    #[must_use]
    pub fn manual_acks(mut self, manual_acks: bool) -> Self {
        self.manual_acks = manual_acks && C::MANUAL_ACKS;
        self
    }

    /// Changes the settings of the connector, which only this library has.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(C) -> C) -> Self {
        self.connector = change(self.connector);
        self
    }

    /// Lets a store publish no claim.
    ///
    /// By default a store publishes a claim, unless it [reconnects after a
    /// takeover](Options::retry_after_takeover). Of two stores with one client id, the one started
    /// last serves and the other ends, on every broker. The claim is a retained message on
    /// `clients/{client id}/services/statestore/instance`, which the store must be allowed to write
    /// and read. A store that stops removes its claim; a claim that remains does no harm.
    ///
    /// If the store may not use that topic, or the broker supports no retained messages, the store
    /// serves nevertheless: half a second later, or at the third attempt if the broker closes the
    /// connection.
    #[must_use]
    pub fn without_claim(mut self) -> Self {
        self.takeover = None;
        self
    }

    /// Sets a hook that replaces the error of a failed attempt, until the first connection.
    ///
    /// A program can inspect the [cause](LinkError::get_ref), probe the port, and return a
    /// [permanent](LinkError::permanent) error with advice. The hook is called for transient
    /// errors.
    #[must_use]
    pub fn diagnose(
        mut self,
        diagnose: impl Fn(LinkError, Address) -> Diagnosis + Send + Sync + 'static,
    ) -> Self {
        self.diagnose = Some(Box::new(diagnose));
        self
    }

    /// Reports which of [several](Options::add_address) addresses is in use, also after the link
    /// was moved into a handle or a store.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        self.addresses.in_use()
    }

    /// Opens a connection to this address.
    async fn open(&mut self, address: &Address) -> Result<Connected, LinkError> {
        self.active = None;
        if self.options.credentials.as_ref().is_some_and(|(user, _)| user.contains('\0')) {
            let text = "the user name contains a NUL character; remove it";
            return Err(LinkError::new(LinkErrorKind::Credentials, text));
        }
        if self.options.exposes_credentials() && !mem::replace(&mut self.warned, true) {
            warn!(broker = %address, "the password or token is sent without TLS: use mqtts");
        }
        let opening = Opening { options: &self.options, address, manual_acks: self.manual_acks };
        let opened = timeout(self.options.connect_timeout, self.connector.open(opening)).await;
        let opened = opened.unwrap_or_else(|_| {
            let limit = self.options.connect_timeout.as_secs();
            let text = match &self.options.proxy {
                Some(proxy) => {
                    format!("the broker did not respond within {limit} s through the proxy {proxy}")
                }
                None => format!("the broker did not respond within {limit} s"),
            };
            Err(LinkError::new(LinkErrorKind::TimedOut, text))
        });
        let (connection, negotiated) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let error = error.explained();
                let diagnosis = match &self.diagnose {
                    Some(diagnose) if error.is_transient() => diagnose(error, address.clone()),
                    _ => return Err(error),
                };
                return Err(diagnosis.await);
            }
        };
        self.diagnose = None;
        self.redelivery.connected();
        let mut active = Active::new(connection, &negotiated);
        if self.options.read_mosquitto_log {
            for filter in mosquitto::FILTERS {
                active.subscribe(filter.into());
            }
        }
        // A broker without retained messages closes the connection for one.
        let may_claim = negotiated.retain_available && self.lost_claiming < LOST_CLAIMING_MAX;
        let held_max = usize::from(self.options.receive_maximum);
        if let Some(takeover) = self.takeover.as_mut().filter(|_| may_claim)
            && let Err(error) = active.claim(takeover, held_max, self.manual_acks).await
        {
            self.lost_claiming += 1;
            active.close().await;
            return Err(error);
        }
        self.lost_claiming = 0;
        self.active = Some(active);
        Ok(Connected {
            session_present: negotiated.session_present,
            address: Some(address.clone()),
        })
    }

    /// Applies the options to an error of the connection.
    fn handle_loss(&mut self, error: LinkError) -> LinkError {
        // An overloaded connection still has messages for a caller that asks for them.
        if error.kind() != LinkErrorKind::Overloaded {
            self.active = None;
        }
        let retries = error.kind() == LinkErrorKind::TakenOver && self.options.retry_after_takeover;
        let error = if retries { error.retriable() } else { error };
        self.addresses.report_loss(error, Instant::now())
    }

    fn count_offender(&mut self, client_id: &str) {
        self.offenders += 1;
        if self.offenders == 1 {
            warn!(client_id, "cannot disconnect an offending client over an external broker");
        } else {
            debug!(client_id, offenders = self.offenders, "an offending client stays connected");
        }
    }

    /// The event for a message, if any.
    fn receive(
        &mut self,
        arrived: ReceivedPublish<<C::Connection as Connection>::Message>,
    ) -> Option<LinkEvent<Received<<C::Connection as Connection>::Message>>> {
        let active = self.active.as_mut()?;
        let ReceivedPublish { message, id, dup, at } = arrived;
        let delivery = id.map(|id| {
            self.last_delivery += 1;
            let delivery = Delivery(self.last_delivery);
            active.unacknowledged.arrived(delivery, id);
            delivery
        });
        // Every acknowledged message counts as the first one, readable or not.
        let is_suspect = id.is_some_and(|id| self.redelivery.is_suspect(id.id, dup));
        let presence = self.options.read_mosquitto_log;
        let claims = self.takeover.as_ref().map(Takeover::topic);
        let content = message.as_incoming().map(|incoming| match incoming.topic {
            topic if presence && topic.starts_with(mosquitto::TOPICS) => {
                Content::Gone(mosquitto::gone(incoming.payload).map(Into::into))
            }
            topic if Some(topic) == claims => Content::Claim,
            _ => Content::Message,
        });
        if let Some(delivery) = delivery
            && (is_suspect || !matches!(content, Some(Content::Message)))
        {
            active.acknowledge(delivery);
        }
        match content {
            Some(Content::Message) => {
                let packet_bytes_max = active.packet_bytes_max;
                let received = Received { message, delivery, at, packet_bytes_max };
                Some(LinkEvent::Message(received))
            }
            Some(Content::Gone(client_id)) => client_id.map(LinkEvent::ClientGone),
            // Claims matter only while connecting.
            Some(Content::Claim) => None,
            None => {
                debug!("message dropped: it is unreadable");
                None
            }
        }
    }
}

/// Content of a message.
enum Content {
    /// A message for the machine.
    Message,
    /// A line of mosquitto's log, with the id of the disconnected client, if any.
    Gone(Option<Arc<str>>),
    /// A claim.
    Claim,
}

impl<C: Connector> Link for ManagedLink<C> {
    type Message = Received<<C::Connection as Connection>::Message>;

    fn client_id(&self) -> &str {
        &self.options.client_id
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        let mut address = self.addresses.begin_round(Instant::now());
        loop {
            match self.open(&address).await {
                Ok(connected) => {
                    self.addresses.report_connection(Instant::now());
                    return Ok(connected);
                }
                Err(error) => address = self.addresses.report_failure(error)?,
            }
        }
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        // Without a connection, `next_event` reports the loss.
        let Some(active) = &mut self.active else { return Ok(()) };
        let packet = match transmit {
            Transmit::Acknowledge(delivery) => {
                active.acknowledge(delivery);
                return Ok(());
            }
            Transmit::Disconnect { client_id, .. } => {
                self.count_offender(&client_id);
                return Ok(());
            }
            Transmit::Publish(publish) => Outgoing::Publish(publish),
            Transmit::Subscribe { filter, token } => {
                Outgoing::Subscribe { filter, qos: Qos::AtLeastOnce, token: Some(token) }
            }
            unsupported => {
                warn!("output of the machine not supported: {unsupported:?}");
                return Ok(());
            }
        };
        match active.try_send(packet) {
            Ok(()) => Ok(()),
            Err(Outgoing::Publish(publish)) => Err(Transmit::Publish(publish)),
            Err(Outgoing::Subscribe { filter, token: Some(token), .. }) => {
                Err(Transmit::Subscribe { filter, token })
            }
            Err(other) => {
                debug_assert!(false, "a connection returns the packet it was offered: {other:?}");
                Ok(())
            }
        }
    }

    fn last_read(&self) -> Option<Instant> {
        self.active.as_ref()?.connection.last_read()
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Self::Message>, LinkError> {
        loop {
            let Some(active) = &mut self.active else {
                return Err(LinkError::new(LinkErrorKind::NotConnected, "not connected"));
            };
            let is_flushed = active.flush();
            if let Some(event) = active.events.pop_front() {
                return Ok(event);
            }
            let event = if messages && let Some(arrived) = active.held.pop_front() {
                Ok(ConnectionEvent::Message(arrived))
            } else if let Some(error) = active.lost.take() {
                Err(error)
            } else {
                active.connection.next_event(messages).await
            };
            match event {
                Ok(ConnectionEvent::Message(arrived)) => {
                    if let Some(event) = self.receive(arrived) {
                        return Ok(event);
                    }
                }
                Ok(ConnectionEvent::Settled(ticket, reason)) => active.settle(ticket, reason),
                Ok(ConnectionEvent::Writable) if is_flushed || active.flush() => {
                    return Ok(LinkEvent::Writable);
                }
                Ok(ConnectionEvent::Writable) => {}
                Err(error) => return Err(self.handle_loss(error)),
            }
        }
    }

    async fn disconnect(&mut self) {
        if let Some(active) = self.active.take() {
            active.close().await;
        }
    }
}

impl<C: Connector> fmt::Debug for ManagedLink<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagedLink").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
