//! An MQTT 5 broker in this process that hosts the state store: one binary, no other broker.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let here = statestore_embedded::local().await?;
//! println!("any MQTT 5 client finds it on {}", here.broker().local_addr());
//!
//! // A client in this process needs no network.
//! let store = here.connect("thermostat-7")?;
//! let version = store.set("setpoint", "21").await?;
//! assert_eq!(store.get("setpoint").await?.and_then(|found| found.version), Some(version));
//! # Ok(())
//! # }
//! ```
//!
//! [`local`] is for tests and for a first look: a free port, on this machine only. [`serve`] takes [`Options`], and a
//! [`Broker`] with links of its own everything else.
//!
//! The command `statestore serve` is this with a command line. The broker is that of the crate `mqtt5`, with retained
//! messages, sessions, wills and shared subscriptions as on any broker, all in memory; WebSocket, QUIC, bridges and `$SYS`
//! topics are off. The store is a session of its router, reached by a [`Link`], so that
//! [`StoreService`] hosts it as it does beside another broker.
//!
//! # What only a store in the broker can do
//!
//! * It knows who asks. The broker removes what a client says of itself in `x-mqtt-client-id` and adds the client id that
//!   it has connected with. A request that claims another one in `__srcId` is answered with `not authorized`.
//! * A notification goes to the client that sent the KEYNOTIFY, exactly once, whether or not it subscribes to its topic
//!   and by how many filters. Nobody else hears it, not even with a subscription to `#`. It comes at QoS 1 and without
//!   subscription identifiers. Replies are ordinary messages to the response topic, and reach who subscribes to it.
//! * For one client replies and notifications keep the order in which the store made them.
//! * A client that disconnects, drops, falls silent or is taken over loses its registrations at once, even when its
//!   session lives on.
//! * A client that breaks the rules for response topics is disconnected.
//! * Nobody but the store publishes below `clients/statestore/`: others get reason 0x87.
//!
//! # Who may connect
//!
//! By default everybody who reaches the port, which by default is this machine. [`Options::users`] asks for a name and
//! password out of a [`Users`] file; [`Options::tls`] encrypts, and [`tls_config`] with authorities for clients asks each
//! for a certificate. Neither ties a client id to a user: whoever may connect at all may connect with any client id that
//! is legal here (below), throw out the client that has it, act in its name, and subscribe to the replies of others. One
//! that needs more than that needs a broker with access rules.
//!
//! # What is bounded by what
//!
//! * Connections: [`Options::max_connections`], those included that have not said anything yet; these have ten seconds
//!   for TLS and ten more to connect.
//! * Requests: [`Options::queue`] of them wait for the store, then their publishers wait. A store that takes nothing for
//!   four seconds makes the broker refuse requests with reason 0x87; so it does when no store has been there for two.
//!   None is dropped, unless more than 16 MiB of them come in the seconds before that.
//! * Messages to a client: [`Options::in_flight`] without an acknowledgement, 256 on their way, and 10,000 or 16 MiB behind
//!   that. Then the oldest is dropped, as on most brokers; but where that is for a notification the client is
//!   disconnected, so that it knows: it registers anew and reads the key again. Whoever does not read holds up nobody.
//! * Packets: [`Options::max_packet_size`]. What is larger than a client takes is not sent to it.
//! * Sessions of clients that are away: a day.
//!
//! # Limits of the broker's crate
//!
//! * A client id of more than 128 bytes, or with `/`, `\`, `..` or a control character, is refused with reason 0x85.
//! * PUBACK is 0x00 when nobody subscribes, where mosquitto says 0x10.
//! * A subscription with a wildcard is compared with each message, so thousands of them slow all down.
//! * A client with overlapping subscriptions gets a message once for each, notifications apart.
//! * A client is disconnected without a DISCONNECT packet, and one that is stuck in the middle of a write only when its
//!   keep-alive time is over; its registrations end at once.
#![forbid(unsafe_code)]

mod access;
mod broker;
mod convert;
mod link;
mod options;
mod outgoing;
mod session;
mod store_route;
mod tls;
mod users;

use std::net::Ipv4Addr;

pub use broker::{BindError, Broker};
pub use convert::Message;
pub use link::EmbeddedLink;
pub use options::Options;
pub use statestore_tokio::*;
pub use tls::{TlsError, tls_config};
pub use tokio_rustls::rustls;
pub use users::{SharedUsers, Users, UsersError};

/// A broker with a store in it, with default limits. Both run on this runtime, in the thread of a current-thread runtime
/// faster than in several.
///
/// Stop the service first, so that it sends what it has to send, and then the broker.
///
/// # Errors
/// [`BindError`] when it cannot listen.
pub async fn serve(options: Options) -> Result<(Broker, StoreService), BindError> {
    let broker = Broker::bind(options).await?;
    let service = StoreService::builder().spawn(broker.store_link());
    Ok((broker, service))
}

/// A broker with a store in it, on a free port of this machine: one line in a test.
///
/// # Errors
/// [`BindError`] when it cannot listen.
pub async fn local() -> Result<Local, BindError> {
    let (broker, service) = serve(Options::new((Ipv4Addr::LOCALHOST, 0))).await?;
    // It can only fail with the runtime, and then so does whatever comes next.
    let _ = service.connected().await;
    Ok(Local { service, broker })
}

/// A broker with a store in it that serves. Dropping it ends both.
#[derive(Debug)]
pub struct Local {
    service: StoreService,
    broker: Broker,
}

impl Local {
    /// A handle of a client in this process, connected without a network.
    ///
    /// # Errors
    /// [`ConfigError`] when the client id cannot be one.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[track_caller]
    pub fn connect(&self, client_id: &str) -> Result<StateStore, ConfigError> {
        StateStore::builder().spawn(self.broker.link(client_id))
    }

    /// The broker: its address, for clients elsewhere.
    #[must_use]
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The store: its statistics.
    #[must_use]
    pub const fn service(&self) -> &StoreService {
        &self.service
    }
}

/// The program in the README of this package.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
