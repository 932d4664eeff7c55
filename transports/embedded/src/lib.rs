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
//! The command `statestore serve` is this with a command line. The broker is the machine of
//! [`statestore_mqtt::broker`], driven with tokio over TCP and TLS: retained messages, sessions, wills and shared
//! subscriptions as on any broker, all in memory. The store is its host, reached by a [`Link`], so that [`StoreService`]
//! hosts it as it does beside another broker.
//!
//! # What only a store in the broker can do
//!
//! * It knows who asks. The broker says who sent a request, and nothing of that is on the wire. A request that claims another
//!   client in `__srcId` is answered with `not authorized`.
//! * A notification goes to the client that sent the KEYNOTIFY, exactly once, whether or not it subscribes to its topic
//!   and by how many filters. Nobody else hears it, not even with a subscription to `#`. It comes at QoS 1 and without
//!   subscription identifiers. Replies are ordinary messages to the response topic, and reach who subscribes to it.
//! * For one client replies and notifications keep the order in which the store made them.
//! * A client that disconnects, drops, falls silent or is taken over loses its registrations at once, even when its
//!   session lives on.
//! * A client that wants its answers at a topic that the protocol forbids, that of requests or of notifications, is
//!   disconnected; below `clients/ID/` of others it is refused, as below.
//!
//! # What holds for every client
//!
//! * Requests reach the store and nobody else: a subscription to their topic is refused, and a wildcard does not bring them.
//! * What is published below `clients/ID/` is delivered to the client `ID` only, whoever else subscribes to it.
//! * Nobody but the store publishes below `clients/statestore/`, and nobody asks for answers below `clients/ID/` of another
//!   client: reason 0x87.
//! * Properties are forwarded as they came, and in order; nothing is added.
//! * PUBACK is 0x10 when nobody subscribes, and a client that is disconnected is told why.
//!
//! # Who may connect
//!
//! By default everybody who reaches the port, which by default is this machine. [`Options::users`] asks for a name and
//! password out of a [`Users`] file; [`Options::tls`] encrypts, and [`tls_config`] with authorities for clients asks each
//! for a certificate, whose name is the user with [`Options::certificate_users`]; such a client is disconnected when its
//! certificate expires. With the feature `service-accounts` Kubernetes service accounts come in by their tokens.
//! A user's client ids are its name, and what begins with that and a hyphen, unless
//! [`Options::any_client_id`] leaves them free or a policy names others; nobody takes over another user's session.
//! [`Options::policy`] allows what a [`policy`] allows, and nothing else; [`serve`] tells the store of it,
//! and [`Broker::recheck`] disconnects whoever may not do any more what it might.
//!
//! Without users client ids are free: whoever may connect at all may connect with any, throw out the client that has it, act in its name,
//! and hear its replies. A client id with `/` in it is below another one that it begins with: `a` hears what is for `a/b`; and
//! deployed Go clients have their answers below their id in Base16, which is another client's id if one calls itself so.
//!
//! # WebSocket
//!
//! With the feature `websocket` `Options::websocket` listens for MQTT over WebSocket too, as section 6 of the standard has
//! it: binary frames, in which packets begin and end where they like, with the subprotocol `mqtt`, on whatever path. Frames
//! and messages may be of any length, since nothing of them is kept here but the packets, which count as elsewhere. A text
//! frame ends the connection with code 1003, and what breaks the rules of WebSocket with 1002. An HTTP request for something
//! else is answered with a line that says what is spoken.
//!
//! A browser lets the page of anybody connect to whatever it reaches, a store on the same machine included, and says in the
//! header `Origin` whose page it is. Such a request is answered with 403 unless
//! `Options::websocket_origin` allows that origin.
//!
//! # What is bounded by what
//!
//! [`Limits`] has all numbers. In bytes are counted packets that have not come to their end, messages that wait or are not
//! acknowledged, subscriptions, wills, retained messages, sessions and connections, all together
//! ([`Options::memory`], 64 MiB by default) and for each client (8 MiB).
//!
//! * Who holds more than its share is disconnected, and its session ends; when all memory is taken it is the one who holds
//!   most. Both are told so if they read: reason 0x97. A message at QoS 1 or 2 is never dropped behind the back of a client, but for one that
//!   is out of date or larger than the client takes; where that is a notification the client is disconnected, so that
//!   it knows: it registers anew and reads the key again.
//! * Requests wait for the store in a queue for each client, and clients have their turns. Who has 256 KiB waiting is not
//!   read from until some of them are taken, and nobody else waits for that. While there is no store, requests wait for
//!   one.
//! * Connections: [`Options::max_connections`], those included that have not said anything yet; these have ten seconds
//!   to encrypt and connect, and 4 KiB; 20 KiB where service accounts may have tokens. Sixteen more at a time may do that to be
//!   told that the server is busy, reason 0x89, or that there are too many from their address, 0x97; others are closed without
//!   a word.
//! * Packets: [`Options::max_packet_size`]. What is larger than a client takes is not sent to it.
//! * Sessions of clients that are away: a day, and 10,000 together with the others, the store's own apart; for one more the one
//!   gives way that has been away for longest, of those without subscriptions, messages and will if there are any.
//! * Who logs in: two passwords are looked at at a time, and 64 wait for that; others are told that the server is busy.
//!   After four wrong passwords for one name an address has to wait before it tries that name again, from a second up to a
//!   minute, and after twenty for whatever names up to four seconds: reason 0x9F. Nobody elsewhere is kept out by that, and
//!   who has logged in within the last hour waits for nothing. [`Stats::refused_logins`] counts all who are refused.
//! * Beside what is counted: TLS takes some 7 KiB of each connection, and 96 KiB at most; a WebSocket 300 bytes, and 8 KiB
//!   until its request is read; passwords twice what the largest hash in the file takes, 19 MiB as they are made here, from
//!   the first login on; whoever is being disconnected what was being written to it, 64 KiB at most, for two seconds at most; and the system has buffers for each socket.
//! * Time: what one client sends is handled in pieces, between which others have their turns. A message goes to all of its
//!   subscribers at once.
#![forbid(unsafe_code)]

mod access;
mod broker;
mod certificates;
mod connection;
mod convert;
mod identities;
mod identity;
mod incidents;
mod link;
mod logins;
mod options;
mod running;
#[cfg(feature = "service-accounts")]
mod service_accounts;
mod shared_policy;
mod tls;
mod users;
#[cfg(feature = "websocket")]
mod websocket;

use std::net::Ipv4Addr;

pub use broker::{BindError, Broker, Traffic};
pub use certificates::{CertificateName, CertificateUsers};
pub use convert::Message;
pub use link::EmbeddedLink;
pub use options::Options;
#[cfg(feature = "service-accounts")]
pub use service_accounts::{KeysError, ServiceAccountKeys, ServiceAccounts};
pub use shared_policy::SharedPolicy;
pub use statestore_mqtt::broker::{Limits, Referral, Stats};
/// The policy itself.
pub use statestore_policy as policy;
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
    serve_with(options, StoreService::builder()).await
}

/// The same with a service that was prepared: with a [journal](ServiceBuilder::journal), so that what is stored survives a
/// crash, or with another [configuration](ServiceBuilder::config). A [policy](Options::policy) of the options is asked about
/// each request, instead of any authorizer that the service has.
///
/// ```no_run
/// use statestore_embedded::{Options, StoreService, serve_with};
/// # async fn run(journal: impl statestore_embedded::Journal) -> Result<(), Box<dyn std::error::Error>> {
/// // Of `statestore-sqlite`, say: SqliteJournal::open("/var/lib/statestore")?
/// let service = StoreService::builder().journal(journal);
/// let (broker, service) = serve_with(Options::new(([127, 0, 0, 1], 1883)), service).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`BindError`] when it cannot listen.
pub async fn serve_with(
    options: Options,
    mut service: ServiceBuilder,
) -> Result<(Broker, StoreService), BindError> {
    let authorizer = options.policy.as_ref().map(SharedPolicy::authorizer);
    let broker = Broker::bind(options).await?;
    if let Some(authorizer) = authorizer {
        service = service.authorizer(authorizer);
    }
    let service = service.spawn(broker.store_link());
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
