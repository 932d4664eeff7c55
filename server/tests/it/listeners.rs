//! Several listeners of one broker.

use std::net::{SocketAddr, TcpListener};

use statestore_client::Tls;
use statestore_server::{BindError, CertificateName, CertificateUsers, TlsPem, Users};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::Reason;
use statestore_tokio::Options as ClientOptions;

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
        let options = options()
            .listener(Listener::new(LOCALHOST).tls(tls.clone()))
            .listener(Listener::new(LOCALHOST).websocket(["*"]))
            .listener(Listener::new(LOCALHOST).websocket(["*"]).tls(tls));
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
                assert!(tokio::net::TcpStream::connect(address).await.is_err(), "{address}");
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
        let free = TcpListener::bind(LOCALHOST).and_then(|free| free.local_addr());
        let free = free.expect("a free port");
        let options = Options::new(free).listener(taken.1);
        let error = Broker::bind(options).await.expect_err("the port is taken");
        assert!(matches!(error, BindError::InUse(address) if address == taken.1), "{error}");
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
