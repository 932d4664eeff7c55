//! Each kind of stream carries requests, notifications and large values.

use std::net::SocketAddr;

use statestore_client::{ConnectError, StateStore, WatchEvent, connect, connect_with};
use statestore_server::{Broker, Listener, Options, StoreService, serve};
use statestore_testkit::process::timely;

/// A server on a free port, over TCP and WebSocket.
async fn server() -> (Broker, StoreService) {
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    serve(Options::new(loopback).listener(Listener::new(loopback).websocket::<&str>([])))
        .await
        .expect("a free port")
}

/// A value that needs several reads and writes.
fn large_value() -> Vec<u8> {
    (0..900_000_u32).map(|index| index.to_le_bytes()[0]).collect()
}

async fn check(url: &str) {
    let store = connect(url).expect("a valid URL");
    check_store(&store).await;
    store.shutdown().await;
}

async fn check_store(store: &StateStore) {
    let mut watch = store.watch("key").await.expect("registered");
    let version = store.set("key", "value").await.expect("set");
    let found = store.get("key").await.expect("answered").expect("found");
    assert_eq!((&*found.value, found.version), (&b"value"[..], Some(version)));
    loop {
        let event = watch.next().await.expect("the watch continues");
        if let WatchEvent::Changed { value: Some(value), .. } = event {
            assert_eq!(&*value, b"value");
            break;
        }
    }
    let value = large_value();
    store.set("large", value.clone()).await.expect("set");
    let found = store.get("large").await.expect("answered").expect("found");
    assert!(found.value == value, "a large value is unchanged");
}

#[tokio::test]
async fn tcp_carries_requests_notifications_and_large_values() {
    let (broker, _service) = server().await;
    timely(check(&format!("mqtt://{}", broker.local_addr()))).await;
}

#[cfg(feature = "websocket")]
#[tokio::test]
async fn websocket_carries_requests_notifications_and_large_values() {
    let (broker, _service) = server().await;
    let address = broker.local_addrs()[1];
    timely(check(&format!("ws://{address}/mqtt"))).await;
}

#[cfg(unix)]
#[tokio::test]
async fn unix_socket_carries_requests_notifications_and_large_values() {
    let (broker, _service) = server().await;
    let address = broker.local_addr();
    let path = std::env::temp_dir().join(format!("statestore-client-{}.sock", std::process::id()));
    // A killed process with this id may have left it.
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).expect("a new socket");
    let forward = tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = tokio::net::TcpStream::connect(address).await.expect("the server");
            far.set_nodelay(true).expect("a TCP socket");
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        }
    });
    timely(check(&format!("unix://{}", path.display()))).await;
    forward.abort();
    std::fs::remove_file(&path).expect("it exists");
}

#[tokio::test]
async fn many_requests_in_flight_all_end() {
    let (broker, _service) = server().await;
    let url = format!("mqtt://{}", broker.local_addr());
    let store = connect_with(&*url, |builder| builder).expect("a valid URL");
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..200 {
                    let key = format!("key/{task}");
                    store.set(&*key, format!("{round}")).await.expect("set");
                    let found = store.get(&*key).await.expect("answered").expect("found");
                    assert_eq!(&*found.value, format!("{round}").as_bytes());
                }
            })
        })
        .collect();
    timely(async {
        for task in tasks {
            task.await.expect("no panic");
        }
    })
    .await;
}

#[tokio::test]
async fn invalid_url_is_an_error() {
    assert!(matches!(connect("http://localhost"), Err(ConnectError::Url(_))));
    assert!(matches!(connect("mqtt://h?client_id="), Err(ConnectError::Config(_))));
}
