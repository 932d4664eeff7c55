//! Several listeners of one broker.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use statestore_client::Tls;
use statestore_server::{BindError, CertificateName, CertificateUsers, TlsPem, Users};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::process::{Port, timely, wait_free};
use statestore_testkit::wire::packets::Reason;
use statestore_tokio::Options as ClientOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;

const LOCALHOST: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

fn tls(made: &Certificates) -> ServerTls {
    let pem = TlsPem::new(made.read("broker.pem"), made.read("broker.key"));
    ServerTls::from_pem(&pem).expect("valid files")
}

fn mutual_tls(made: &Certificates) -> ServerTls {
    let pem = TlsPem::new(made.read("broker.pem"), made.read("broker.key"));
    ServerTls::from_pem(&pem.client_ca(made.read("ca.pem"))).expect("valid files")
}

fn client_options(made: &Certificates, client_id: &str, address: SocketAddr) -> ClientOptions {
    let tls = Tls::default()
        .ca_file(made.path("ca.pem"))
        .identity(made.path("client.pem"), made.path("client.key"));
    ClientOptions::new(client_id, "localhost", address.port()).tls(tls)
}

async fn connect_reason(options: &ClientOptions) -> Reason {
    match statestore_client::SessionSocket::connect(options).await {
        Ok(_) => Reason::SUCCESS,
        Err(error) => error.reason().map_or(Reason(0xff), |reason| Reason(reason.0)),
    }
}

/// Plain and TLS, TCP and WebSocket; all of them also after a restart.
#[cfg(feature = "websocket")]
#[tokio::test(flavor = "multi_thread")]
async fn four_kinds_of_listeners_serve_the_same_store() {
    use crate::websocket::{can_connect_by_websocket, tls_connector};

    let Some(made) = Certificates::make("four_kinds_of_listeners") else { return };
    timely(async {
        let tls = tls(&made);
        // Reserved, since the broker is restarted.
        let ports = [(); 4].map(|()| Port::free());
        let listener = |at: usize| Listener::new((Ipv4Addr::LOCALHOST, ports[at].number()));
        let options = Options::new(listener(0))
            .listener(listener(1).tls(tls.clone()))
            .listener(listener(2).websocket(["*"]))
            .listener(listener(3).websocket(["*"]).tls(tls));
        let (broker, _service) = start(options).await;
        let addresses = broker.local_addrs();
        assert_eq!(addresses[0], broker.local_addr());
        let connector = tls_connector(&made.read("ca.pem"));
        for run in 0..2 {
            assert_eq!(broker.local_addrs(), addresses, "run {run}");
            let plain = client(&broker, "plain").await;
            let secured = client_options(&made, "secured", addresses[1]);
            let secured = statestore_client::connect(secured).expect("a client id");
            plain.set("k", "v").await.expect("a version");
            let found = secured.get("k").await.expect("an answer").expect("a value");
            assert_eq!(found.value, "v");
            assert!(can_connect_by_websocket(addresses[2], None).await, "ws");
            assert!(can_connect_by_websocket(addresses[3], Some(&connector)).await, "wss");
            assert!(!can_connect_by_websocket(addresses[3], None).await, "no TLS");
            let plain_at_tls = ClientOptions::new("plain-2", "127.0.0.1", addresses[1].port());
            assert_ne!(connect_reason(&plain_at_tls).await, Reason::SUCCESS);
            drop((plain, secured));
            broker.stop().await;
            for address in &addresses {
                wait_free(address);
            }
            broker.start().await.expect("restart");
        }
    })
    .await;
}

#[tokio::test]
async fn no_listener_stays_bound_if_one_cannot_be_bound() {
    timely(async {
        let taken = TcpListener::bind(LOCALHOST).expect("a free port");
        let taken = taken.local_addr().map(|address| (taken, address)).expect("an address");
        let port = Port::free();
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        let options = Options::new(free).listener(taken.1);
        let error = Broker::bind(options).await.expect_err("the port is taken");
        assert!(matches!(error, BindError::InUse(address) if address == taken.1), "{error}");
        wait_free(free);
        TcpListener::bind(free).expect("the first port is free again");
    })
    .await;
}

/// A listener without client CAs asks for the password alone.
#[tokio::test(flavor = "multi_thread")]
async fn certificate_users_apply_to_listeners_with_client_ca() {
    let Some(made) = Certificates::make("certificate_users_apply_to_listeners_with_client_ca")
    else {
        return;
    };
    timely(async {
        let both = || {
            secured(mutual_tls(&made))
                .listener(LOCALHOST)
                .certificate_users(CertificateUsers::new(CertificateName::CommonName))
        };
        let mut users = Users::default();
        users.set("client", "secret").expect("a user");
        for (options, with_password, without) in [
            (both().users(users), Reason::SUCCESS, Reason::BAD_USER_NAME_OR_PASSWORD),
            (both(), Reason::NOT_AUTHORIZED, Reason::NOT_AUTHORIZED),
        ] {
            let has_users = with_password == Reason::SUCCESS;
            let (broker, _service) = start(options).await;
            let [mutual, plain] = broker.local_addrs()[..] else { panic!("two listeners") };
            let mutual = client_options(&made, "client", mutual);
            let plain = ClientOptions::new("client", "127.0.0.1", plain.port());
            assert_eq!(
                connect_reason(&mutual).await == Reason::SUCCESS,
                !has_users,
                "with users, a certificate needs the password too"
            );
            let mutual = mutual.credentials("client", "secret");
            assert_eq!(connect_reason(&mutual).await, Reason::SUCCESS);
            assert_eq!(connect_reason(&plain).await, without);
            let plain = plain.credentials("client", "secret");
            assert_eq!(connect_reason(&plain).await, with_password);
        }
    })
    .await;
}

/// The options of three clients at one listener: without a login, with a certificate, with a token.
#[cfg(feature = "service-accounts")]
fn three_clients(
    made: &Certificates,
    token: &std::path::Path,
    address: SocketAddr,
    is_tls: bool,
) -> [ClientOptions; 3] {
    let options = || ClientOptions::new("device", "localhost", address.port());
    let tls = || Tls::default().ca_file(made.path("ca.pem"));
    if !is_tls {
        return [options(), options(), options().service_account_token(token)];
    }
    let with_certificate = tls().identity(made.path("client.pem"), made.path("client.key"));
    [
        options().tls(tls()),
        options().tls(with_certificate),
        options().tls(tls()).service_account_token(token),
    ]
}

#[cfg(feature = "service-accounts")]
#[tokio::test(flavor = "multi_thread")]
async fn each_listener_has_its_own_login() {
    use statestore_server::{ServiceAccountKeys, ServiceAccounts};
    use statestore_testkit::credentials::tokens::{AUDIENCE, Claims, ISSUER, Issuer, key_set};

    let Some(made) = Certificates::make("each_listener_has_its_own_login") else { return };
    let issuer = Issuer::p256("k");
    let keys = ServiceAccountKeys::parse(&key_set(&[&issuer])).expect("keys");
    let accounts = ServiceAccounts::new(keys, ISSUER, [AUDIENCE]);
    let token = made.path("token");
    std::fs::write(&token, issuer.token(&Claims::of("home", "device"))).expect("a file");
    let users = CertificateUsers::new(CertificateName::CommonName);
    timely(async {
        let options = Options::new(Listener::new(LOCALHOST).anonymous())
            .listener(Listener::new(LOCALHOST).tls(mutual_tls(&made)).certificate_users(users))
            .listener(Listener::new(LOCALHOST).tls(tls(&made)))
            .service_accounts(accounts.clone())
            .any_client_id();
        let (broker, _service) = start(options).await;
        let addresses = broker.local_addrs();
        let unsupported = Reason::BAD_AUTHENTICATION_METHOD;
        let unreachable = Reason(0xff);
        for (address, is_tls, expected) in [
            // The second client has no TLS, so it sends no certificate.
            (addresses[0], false, [Reason::SUCCESS, Reason::SUCCESS, unsupported]),
            // Without a certificate the TLS handshake fails.
            (addresses[1], true, [unreachable, Reason::SUCCESS, unreachable]),
            (
                addresses[2],
                true,
                [
                    Reason::BAD_USER_NAME_OR_PASSWORD,
                    Reason::BAD_USER_NAME_OR_PASSWORD,
                    Reason::SUCCESS,
                ],
            ),
        ] {
            let clients = three_clients(&made, &token, address, is_tls);
            for (number, (client, expected)) in clients.iter().zip(expected).enumerate() {
                let reason = connect_reason(client).await;
                assert_eq!(reason, expected, "{address} client {number}");
            }
        }
        // A certificate does not make up for a token that is rejected, and keys can be replaced.
        let other = ServiceAccountKeys::parse(&key_set(&[&Issuer::p256("k")])).expect("keys");
        accounts.replace_keys(other);
        let clients = three_clients(&made, &token, addresses[2], true);
        assert_eq!(connect_reason(&clients[2]).await, Reason::NOT_AUTHORIZED);
    })
    .await;
}

/// Logins of the broker do not apply to a listener that has its own.
#[cfg(feature = "service-accounts")]
#[tokio::test(flavor = "multi_thread")]
async fn listener_without_login_ignores_users_of_the_broker() {
    timely(async {
        let mut users = Users::default();
        users.set("ann", "secret").expect("a user");
        let options =
            options().listener(Listener::new(LOCALHOST).anonymous()).users(users).any_client_id();
        let (broker, _service) = start(options).await;
        let [with_login, anonymous] = broker.local_addrs()[..] else { panic!("two listeners") };
        let at = |address: SocketAddr| ClientOptions::new("c", "127.0.0.1", address.port());
        assert_eq!(connect_reason(&at(with_login)).await, Reason::BAD_USER_NAME_OR_PASSWORD);
        assert_eq!(connect_reason(&at(anonymous)).await, Reason::SUCCESS);
        let ann = at(with_login).credentials("ann", "secret");
        assert_eq!(connect_reason(&ann).await, Reason::SUCCESS);
    })
    .await;
}

/// Nagle's algorithm delays the PINGREQ until the PUBLISH is acknowledged, which Linux does after
/// 40 ms or more, except at the start of a connection.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn client_with_nagles_algorithm_does_not_wait_for_delayed_acknowledgements() {
    timely(async {
        let (broker, _service) = start(options()).await;
        let mut stream = TcpStream::connect(broker.local_addr()).await.expect("connected");
        let connect = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01a";
        stream.write_all(connect).await.expect("written");
        let mut connack = [0; 2];
        stream.read_exact(&mut connack).await.expect("CONNACK");
        stream.read_exact(&mut vec![0; connack[1].into()]).await.expect("CONNACK");
        let mut shortest = Duration::MAX;
        for round in 0..60 {
            let started = Instant::now();
            stream.write_all(b"\x30\x04\x00\x01t\x00").await.expect("written");
            stream.write_all(b"\xc0\x00").await.expect("written");
            stream.read_exact(&mut [0; 2]).await.expect("PINGRESP");
            // The fastest of many, because this machine may be busy.
            if round >= 40 {
                shortest = shortest.min(started.elapsed());
            }
        }
        assert!(shortest < Duration::from_millis(20), "{shortest:?}");
    })
    .await;
}
