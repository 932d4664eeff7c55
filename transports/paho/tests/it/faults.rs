//! Options of the CONNECT, and invalid ones.

use std::time::Duration;

use statestore_paho::{Options, PahoLink, connect};
use statestore_testkit::brokers::scripted::Scripted;
use statestore_testkit::process::timely;
use statestore_testkit::wire::packets::Packet;
use statestore_tokio::Link;

#[tokio::test]
async fn options_reach_the_broker() {
    timely(async {
        let broker = Scripted::start().await;
        let options = broker.options("statestore").receive_maximum(77).max_packet_size(5_000);
        let _service = statestore_paho::serve(options.keep_alive(Duration::from_secs(44)));
        let peer = broker.accept().await;
        let Packet::Connect(connect, None, None) = &peer.connect else { panic!("no CONNECT") };
        assert_eq!((&*connect.client_id, connect.keep_alive), ("statestore", 44));
        assert!(!connect.clean_start);
        assert_eq!(connect.session_expiry, Some(300));
        assert_eq!(connect.receive_maximum, Some(77));
        assert_eq!(connect.maximum_packet_size, Some(5_000));
    })
    .await;
}

#[tokio::test]
async fn texts_with_nul_are_permanent_errors() {
    timely(async {
        let options = Options::new("c1", "127.0.0.1", 1).credentials("a\0b", "");
        let error =
            PahoLink::for_client(options).connect().await.expect_err("the user name has a NUL");
        assert!(!error.is_transient() && error.to_string().contains("NUL"), "{error}");
        for (id, host) in [("c\0", "127.0.0.1"), ("c1", "a\0b")] {
            let mut link = PahoLink::for_client(Options::new(id, host, 1));
            assert!(!link.connect().await.expect_err("a text has a NUL").is_transient());
        }
    })
    .await;
}

/// Paho crashes if the session ends with the connection.
#[tokio::test]
async fn clean_session_expires_after_one_second() {
    timely(async {
        let broker = Scripted::start().await;
        let _store =
            connect(broker.options("c1").credentials("me", "it")).expect("a valid client id");
        let peer = broker.accept().await;
        let Packet::Connect(connect, _, Some(login)) = &peer.connect else {
            panic!("no user name")
        };
        assert!(connect.clean_start);
        assert_eq!(connect.session_expiry, Some(1));
        assert_eq!((&*login.username, &*login.password), ("me", "it"));
    })
    .await;
}
