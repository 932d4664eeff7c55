//! A state store server: a store in an embedded MQTT 5 broker, or a complete server from a
//! configuration.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let local = statestore_server::local().await?;
//! println!("any MQTT 5 client can connect to {}", local.broker().local_addr());
//!
//! // A client in this process needs no network.
//! let store = local.connect("thermostat-7")?;
//! let version = store.set("setpoint", "21").await?;
//! assert_eq!(store.get("setpoint").await?.and_then(|found| found.version), Some(version));
//! # Ok(())
//! # }
//! ```
//!
//! * [`local`] is for tests and for a first look: it listens on a free port of the loopback
//!   address.
//! * [`serve`] and [`serve_with`] take [`Options`].
//! * [`Broker`] with its links is for everything else.
//! * With the feature `server`, `Server` runs everything that a configuration describes: listeners,
//!   logins, a policy, a data directory, an external broker or a cluster, and metrics. The command
//!   `statestore serve` is a command line for it.
//!
//! The broker is the state machine
//! of [`statestore_broker`], driven with tokio over TCP and TLS. It has retained messages,
//! sessions, wills and shared subscriptions, all in memory. The store is the host of that broker.
//! It is reached by a [`Link`], so [`StoreService`] hosts it in the same way as with an external
//! broker.
//!
//! # Advantages of a store in the broker
//!
//! * The broker verifies the sender of each request, without a property in the message. If the
//!   `__srcId` of a request is another client id, the response is `not authorized`.
//! * A notification is delivered exactly once, to the client that sent the KEYNOTIFY, regardless of
//!   its subscriptions. No other client receives it, not even with a subscription to `#`. It has
//!   QoS 1 and no subscription identifiers. Responses are ordinary messages to the response topic,
//!   delivered to its subscribers.
//! * Each client receives responses and notifications in the order in which the store sent them.
//! * Registrations end as soon as their client disconnects, loses its connection, exceeds its
//!   keep-alive or is taken over, even if its session continues.
//! * A request whose response topic is reserved by the protocol (the topic of requests or of
//!   notifications) disconnects its client. A response topic below `clients/ID/` of another client
//!   is rejected, see below.
//!
//! # Rules for every client
//!
//! * Only the store receives requests. A subscription to the request topic is rejected, and
//!   wildcards do not match it.
//! * Messages to topics below `clients/ID/` are delivered to the client `ID` only.
//! * Only the store can publish below `clients/statestore/`. A response topic below `clients/ID/`
//!   of another client is rejected. The reason is 0x87, not authorized.
//! * Properties are forwarded unchanged and in order. The broker adds none.
//! * A PUBACK has reason 0x10 without subscribers. A DISCONNECT contains the reason.
//!
//! # Authentication
//!
//! By default every client that reaches the port can connect. By default the port is only reachable
//! from this machine.
//!
//! * `Options::users` requires a user name and a password from a `Users` file (feature
//!   `passwords`).
//! * `Listener::tls` encrypts connections (feature `tls`). A `ServerTls` with client CAs requires a
//!   client certificate. With `Options::certificate_users`, a name in the certificate is the user,
//!   and the client is disconnected when the certificate expires.
//! * With the feature `service-accounts`, Kubernetes service accounts log in with their tokens.
//! * A user's client ids are the user name, and the user name with a hyphen and any suffix, unless
//!   [`Options::any_client_id`] allows all client ids or a policy names others ([`ClientIds`]). No
//!   user can take over the session of another user.
//! * [`Options::policy`] allows what a [`policy`] allows, and nothing else. [`serve`] also passes
//!   the policy to the store. [`Broker::recheck`] disconnects clients whose permissions have
//!   changed.
//!
//! **Without users, client ids protect nothing.** A client that can connect can use any client id:
//! it takes over the session of the client with that id, acts in its name and receives its
//! responses. Client ids that contain each other are not separated either:
//!
//! * Client `a` receives the messages for client `a/b`.
//! * Deployed Go clients receive responses below their client id in Base16. A client whose id is
//!   that text receives them too.
//!
//! # Files that change
//!
//! A [`Reloader`] reads files again while the broker runs: on request ([`Reloader::reload_all`]) or
//! when they change ([`Reloader::watch`]). Each kind of file is a [`Reload`]: `UsersFile`,
//! `ServerTls`, `ServiceAccountKeysFile`, `CertificateAttributesFile` and [`PolicyFile`]. A setting
//! with an invalid file stays unchanged, and the [`Report`] names the file and the error. Existing
//! connections stay, except those of clients whose user was removed or got another password, whose
//! certificate or token is no longer trusted, or whose permissions have changed.
//!
//! # Listeners
//!
//! A broker has one or several [`Listener`]s: plain or with TLS, TCP or WebSocket, each on its own
//! address. If one of them cannot be bound, the broker does not start.
//!
//! # Cargo features
//!
//! No feature is enabled by default. Without features, an in-process broker needs about forty
//! crates.
//!
//! * `passwords`: users with passwords.
//! * `tls`: TLS, client certificates and revocation lists, with rustls.
//! * `websocket`: MQTT over WebSocket.
//! * `service-accounts`: tokens of Kubernetes service accounts.
//!
//! # WebSocket
//!
//! With the feature `websocket`, `Listener::websocket` serves MQTT over WebSocket, as in section 6
//! of MQTT 5: binary frames, the subprotocol `mqtt`, on any path. Packet boundaries
//! and frame boundaries are independent. Frames and messages may have any length: they are decoded
//! without buffering, and the packets in them are limited like all packets. A text frame closes the
//! connection with code 1003, and a violation of the WebSocket protocol with code 1002. Other HTTP
//! requests receive an error with a line about the protocol of this port.
//!
//! A browser lets any web page connect to any address that it can reach, for example to a store on
//! the same machine. It sends the origin of the page in the header `Origin`. Such a request is
//! rejected with status 403 unless `Listener::websocket` allows the origin.
//!
//! # Limits
//!
//! [`Limits`] contains all limits. The broker counts the bytes of incomplete packets, of queued and
//! unacknowledged messages, of subscriptions, wills and retained messages, and of sessions and
//! connections. There is a limit for all clients together ([`Options::memory`], default 64 MiB) and
//! one for each client (8 MiB).
//!
//! * **Memory.** A client that exceeds its limit is disconnected, and its session ends. If the
//!   memory of the broker is exhausted, this happens to the client that uses most, of the user that
//!   uses most in total. The reason is 0x97, quota exceeded. A QoS 1 or 2 message is never silently
//!   dropped for a client, unless it has expired or exceeds the client's maximum packet size.
//! * **Requests** wait for the store in one queue per client, and the queues are served in turn. A
//!   client with 256 KiB of waiting requests is not read from until the store has received some of
//!   them. Other clients are not delayed by this. Without a store, requests wait until there is
//!   one.
//! * **Users** share: what follows counts for the user of a client, for its address if it has no
//!   user, and for the client id if it connected from this machine.
//! * **Connections:** [`Options::max_connections`] of clients that are logged in. A further client
//!   takes the place of one of the user with the most connections, or is rejected with reason 0x89,
//!   server busy, if this is its own user. The reason for too many connections from one address is
//!   0x97.
//! * **Pending connections:** 256 connections whose client is not logged in yet. They have ten
//!   seconds for the handshakes, the CONNECT and the login, and 4 KiB of memory, or 20 KiB with
//!   service accounts. At the limit, a new connection takes the place of the oldest one from the
//!   address with most of them, so connections without a login keep no other address out.
//! * **Packets:** [`Options::max_packet_size`]. A packet that exceeds a client's maximum packet
//!   size is not sent to that client.
//! * **Sessions** of disconnected clients last at most a day. There are at most 10,000 sessions,
//!   without that of the store. A new session evicts one of the user with the most sessions:
//!   preferably one without subscriptions, messages and will, and of these the one that has been
//!   disconnected for longest.
//! * **Retained messages** have 16 MiB. A further one replaces the oldest of the user with the
//!   most, or is rejected with reason 0x97 if this is its own user.
//! * **Logins:** two password checks run at a time, and at most 64 logins wait for a check or run
//!   one. Further logins are rejected with reason 0x89, server busy. After four wrong passwords for
//!   one name, an address must pause before it tries that name again: from one second up to a
//!   minute. After twenty wrong passwords for any names, it must pause up to four seconds. The
//!   reason is 0x9F, connection rate exceeded. Other addresses are not affected, nor are users that
//!   have logged in within the last hour. [`Stats::refused_logins`] counts all rejected logins.
//! * **Not counted:**
//!   * TLS uses about 6 KiB per connection (measured with TLS 1.3). Until the handshake is
//!     complete, a client can make it store up to 64 KiB, the maximum length of a message of the
//!     handshake (measured: 60 KiB). A client with a certificate has its chain in memory twice, at
//!     most 16 KiB each, and once as long as its session lasts.
//!   * Revocation lists are in memory three times: as read, and parsed by rustls and by this crate.
//!     A list of 150,000 certificates needs about 75 MiB (measured).
//!   * A WebSocket uses 300 bytes, and 8 KiB until its handshake is complete.
//!   * Password checks use twice the memory of the largest hash, from the first login on. A hash
//!     made by this crate needs 19 MiB.
//!   * A connection that is being closed keeps at most 16 KiB of unwritten output, for at most two
//!     seconds.
//!   * The operating system has buffers for each socket.
//! * **Time.** Input of a client is processed in slices, with turns of other clients in between. A
//!   message is delivered to all its subscribers at once. A read needs a turn, unless the client was
//!   idle since it sent a whole packet; so do the handshakes of TLS and WebSocket. A client is
//!   closed at more than 64 WebSocket frames in a row without data; 10 seconds reset this count.
#![forbid(unsafe_code)]

mod access;
#[cfg(feature = "server")]
pub mod archive;
mod broker;
#[cfg(feature = "server")]
mod capture;
mod clock;
#[cfg(feature = "etcd")]
mod cluster;
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
mod embedded;
#[cfg(feature = "server")]
mod event;
#[cfg(feature = "server")]
mod expiry;
mod files;
#[cfg(feature = "server")]
mod host;
#[cfg(feature = "websocket")]
mod host_name;
#[cfg(feature = "server")]
pub mod http;
#[cfg(feature = "service-accounts")]
mod json;
mod listen;
mod listener;
mod login;
mod options;
#[cfg(feature = "server")]
mod other_store;
mod reload;
#[cfg(feature = "server")]
mod seed;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod state;
#[cfg(feature = "server")]
mod storage;
#[cfg(feature = "server")]
mod store;
mod sync;

use std::net::Ipv4Addr;

pub use access::fixed_rules::fixed_rule;
pub use access::shared_policy::SharedPolicy;
pub use broker::{BindError, Broker, EmbeddedLink, Message, Traffic};
#[cfg(feature = "server")]
pub use event::{Event, Ready};
pub use files::{FileContents, FileVersion, LoadError, LoadErrorKind, ReadError, ReloadFile};
#[cfg(feature = "tls")]
pub use listen::tls::{RevocationPolicy, ServerTls, TlsError, TlsFiles, TlsPem, TlsWarning};
pub use listener::Listener;
#[cfg(feature = "tls")]
pub use login::certificates::{CertificateName, CertificateUsers};
pub use login::client_ids::{ClientIds, ConnectRejection, check_connect};
#[cfg(feature = "service-accounts")]
pub use login::service_accounts::{KeysError, ServiceAccountKeys, ServiceAccounts};
#[cfg(feature = "passwords")]
pub use login::users::{SharedUsers, Users, UsersError};
pub use options::Options;
#[cfg(feature = "server")]
pub use other_store::OtherStore;
#[cfg(feature = "tls")]
pub use reload::CertificateAttributesFile;
#[cfg(feature = "service-accounts")]
pub use reload::ServiceAccountKeysFile;
#[cfg(feature = "passwords")]
pub use reload::UsersFile;
pub use reload::{
    FileKind, LastReload, PolicyFile, PolicyWarning, Principals, Reload, Reloaded, Reloader,
    Report, Summary,
};
#[cfg(feature = "server")]
pub use server::{Server, ServerBuilder};
#[cfg(feature = "server")]
pub use state::ServerError;
pub use statestore_broker::{Limits, Redirect, Stats};
/// The crate of authorization policies.
pub use statestore_policy as policy;
pub use statestore_tokio::*;
#[cfg(feature = "tls")]
pub use tokio_rustls::rustls;

/// Starts a broker with a store in it, with the default configuration of a store. Both run on the
/// current runtime. A current-thread runtime is faster than a multi-thread runtime.
///
/// Stop the service before the broker, so that it sends its pending output.
///
/// # Errors
/// [`BindError`] if the broker cannot listen.
pub async fn serve(options: Options) -> Result<(Broker, StoreService), BindError> {
    serve_with(options, StoreService::builder()).await
}

/// Like [`serve`], with a configured service: for example with a
/// [journal](service::ServiceBuilder::journal), so that keys survive a crash, or with another
/// [configuration](service::ServiceBuilder::config). A [policy](Options::policy) in the options
/// replaces the authorizer of the service.
///
/// ```no_run
/// use statestore_server::{Options, StoreService, serve_with};
/// # use statestore_server::service::Journal;
/// # async fn run(journal: impl Journal) -> Result<(), Box<dyn std::error::Error>> {
/// // For example with `statestore-sqlite`: SqliteJournal::open("/var/lib/statestore")?
/// let service = StoreService::builder().journal(journal);
/// let (broker, service) = serve_with(Options::new(([127, 0, 0, 1], 1883)), service).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`BindError`] if the broker cannot listen.
pub async fn serve_with(
    options: Options,
    mut service: service::ServiceBuilder,
) -> Result<(Broker, StoreService), BindError> {
    let authorizer = options.policy.as_ref().map(SharedPolicy::authorizer);
    let broker = Broker::bind(options).await?;
    if let Some(authorizer) = authorizer {
        service = service.authorizer(authorizer);
    }
    let service = service.spawn(broker.store_link());
    Ok((broker, service))
}

/// Starts a broker with a store in it on a free port of the loopback address, for tests.
///
/// # Errors
/// [`BindError`] if the broker cannot listen.
pub async fn local() -> Result<Local, BindError> {
    let (broker, service) = serve(Options::new((Ipv4Addr::LOCALHOST, 0))).await?;
    // This only fails if the runtime shuts down. Then later calls report the error.
    let _ = service.wait_connected().await;
    Ok(Local { service, broker })
}

/// A running broker with a store in it. Dropping it stops both.
#[derive(Debug)]
pub struct Local {
    service: StoreService,
    broker: Broker,
}

impl Local {
    /// Returns a client in this process, connected without a network.
    ///
    /// # Errors
    /// [`ConfigError`] if the client id is invalid.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    #[track_caller]
    pub fn connect(&self, client_id: &str) -> Result<StateStore, ConfigError> {
        StateStore::builder().spawn(self.broker.link(client_id))
    }

    /// The URL of the broker, for clients over the network: `mqtt://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mqtt://{}", self.broker.local_addr())
    }

    /// Returns the broker, for example for its address.
    #[must_use]
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Returns the store service, for example for its statistics.
    #[must_use]
    pub const fn service(&self) -> &StoreService {
        &self.service
    }
}

/// Compiles the programs in the README of this package, and runs the first one.
#[cfg(all(doctest, feature = "tls"))]
#[doc = include_str!("../README.md")]
struct Readme;
