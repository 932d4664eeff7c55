//! A scripted broker: a test decides each packet. Every failure is a panic.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use statestore_tokio::{Error, LinkErrorKind, Options, StateStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::process::Port;
use crate::wire::packets::{Packet, Publish, PublishProperties, Qos};

/// A listener with a script.
#[derive(Debug)]
pub struct Scripted {
    listener: TcpListener,
    _port: Port,
}

/// One connection, seen from the broker.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    unread: BytesMut,
    /// The CONNECT of the connection.
    pub connect: Packet,
}

/// Properties of a successful CONNACK.
#[derive(Clone, Copy, Debug, Default)]
pub struct Welcome {
    /// Session Present flag.
    pub session_present: bool,
    /// Receive Maximum.
    pub receive_maximum: Option<u16>,
    /// The largest packet, in bytes.
    pub max_packet_size: Option<u32>,
    /// Server Keep Alive in seconds.
    pub keep_alive: Option<u16>,
    /// Retain Available: 0 or 1.
    pub retain_available: Option<u8>,
}

impl Scripted {
    /// Starts a listener on a free port.
    pub async fn start() -> Self {
        let (port, listener) = Port::bound();
        listener.set_nonblocking(true).expect("a socket");
        let listener = TcpListener::from_std(listener).expect("a runtime");
        Self { listener, _port: port }
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.listener.local_addr().expect("its address").port()
    }

    /// Options for a client of this broker.
    #[must_use]
    pub fn options(&self, client_id: &str) -> Options {
        Options::new(client_id, "127.0.0.1", self.port())
    }

    /// Accepts the next connection and reads its CONNECT.
    pub async fn accept(&self) -> Peer {
        loop {
            let (stream, _) = self.listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            let mut peer = Peer { stream, unread: BytesMut::new(), connect: Packet::PingReq };
            // Another test may probe this port.
            let Some(connect) = peer.read().await else { continue };
            assert!(matches!(connect, Packet::Connect(..)), "{connect:?}");
            peer.connect = connect;
            return peer;
        }
    }

    /// Accepts the next connection and sends a CONNACK.
    pub async fn welcome(&self, welcome: Welcome) -> Peer {
        let mut peer = self.accept().await;
        peer.send(&welcome.bytes()).await;
        peer
    }

    /// Returns whether no connection arrives for a while.
    pub async fn receives_no_connection(&self, duration: Duration) -> bool {
        tokio::time::timeout(duration, self.listener.accept()).await.is_err()
    }
}

impl Welcome {
    fn bytes(self) -> Vec<u8> {
        let mut properties = Vec::new();
        if let Some(value) = self.receive_maximum {
            properties.push(0x21);
            properties.extend(value.to_be_bytes());
        }
        if let Some(value) = self.max_packet_size {
            properties.push(0x27);
            properties.extend(value.to_be_bytes());
        }
        if let Some(value) = self.keep_alive {
            properties.push(0x13);
            properties.extend(value.to_be_bytes());
        }
        if let Some(value) = self.retain_available {
            properties.extend([0x25, value]);
        }
        let len = u8::try_from(properties.len()).expect("few properties");
        let mut bytes = vec![0x20, len + 3, u8::from(self.session_present), 0, len];
        bytes.extend(properties);
        bytes
    }
}

impl Peer {
    /// Sends these bytes.
    pub async fn send(&mut self, bytes: &[u8]) {
        // The peer may have closed the connection.
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads the next packet; returns `None` if the peer has closed the connection.
    pub async fn read(&mut self) -> Option<Packet> {
        loop {
            if let Some(packet) = Packet::take(&mut self.unread) {
                return Some(packet);
            }
            if self.stream.read_buf(&mut self.unread).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Reads until a PUBLISH arrives, and grants every SUBSCRIBE before it.
    pub async fn publish(&mut self) -> Publish {
        loop {
            match self.read().await {
                Some(Packet::Publish(publish)) => return publish,
                Some(Packet::Subscribe(subscribe)) => self.grant(subscribe.pkid, 1).await,
                Some(Packet::PubAck(_) | Packet::PingReq) => {}
                other => panic!("{other:?} instead of a PUBLISH"),
            }
        }
    }

    /// Sends a SUBACK.
    pub async fn grant(&mut self, id: u16, reason: u8) {
        let [high, low] = id.to_be_bytes();
        self.send(&[0x90, 4, high, low, 0, reason]).await;
    }

    /// Acknowledges a PUBLISH.
    pub async fn puback(&mut self, id: u16, reason: u8) {
        let [high, low] = id.to_be_bytes();
        self.send(&[0x40, 4, high, low, reason, 0]).await;
    }

    /// Sends a DISCONNECT with this reason.
    pub async fn disconnect(&mut self, reason: u8) {
        self.send(&[0xe0, 2, reason, 0]).await;
    }

    /// Sends a message.
    pub async fn deliver(&mut self, publish: Publish) {
        self.send(&publish.to_bytes()).await;
    }

    /// Responds to a request like a store without keys.
    pub async fn answer(&mut self, request: &Publish) {
        self.deliver(reply(request)).await;
    }

    /// Acknowledges every request and responds to it, until the connection ends.
    pub async fn serve(mut self) {
        while let Some(packet) = self.read().await {
            match packet {
                Packet::Subscribe(subscribe) => self.grant(subscribe.pkid, 1).await,
                Packet::Publish(request) => {
                    self.puback(request.pkid, 0).await;
                    self.answer(&request).await;
                }
                Packet::Disconnect(_) => return,
                _ => {}
            }
        }
    }
}

/// The response of a store without keys.
fn reply(request: &Publish) -> Publish {
    let asked = request.properties.as_ref().expect("a request has properties");
    let properties = PublishProperties {
        correlation_data: asked.correlation_data.clone(),
        user_properties: vec![("__stat".into(), "200".into())],
        ..PublishProperties::default()
    };
    let topic = asked.response_topic.clone().expect("a response topic");
    Publish::new(topic, Qos::AtMostOnce, Bytes::from_static(b"$-1\r\n"), Some(properties))
}

/// Checks that a client reports the reason of a refused SUBSCRIBE in its status, and retries it.
///
/// # Panics
/// If the client does not.
pub async fn refused_subscription_is_retried(connect: impl FnOnce(Options) -> StateStore) {
    let broker = Scripted::start().await;
    let store = connect(broker.options("c1"));
    let mut status = store.status();
    let mut peer = broker.welcome(Welcome::default()).await;
    let Some(Packet::Subscribe(subscribe)) = peer.read().await else { panic!("a SUBSCRIBE") };
    peer.grant(subscribe.pkid, 0x87).await;
    let status = status.changed().await.expect("a reason");
    let error = status.link_error().expect("a reason");
    assert_eq!(error.kind(), LinkErrorKind::SubscriptionRefused);
    assert_eq!(error.address().map(|address| address.port), Some(broker.port()));
    let reason = error.to_string();
    assert!(reason.contains("cannot subscribe to clients/c1/"), "{reason}");
    let not_sent = Error::NotSent { last_error: Some(error.clone()) };
    assert_eq!(store.get("k").timeout(Duration::from_millis(30)).await, Err(not_sent));
    assert!(matches!(peer.read().await, Some(Packet::Disconnect(_))), "nothing was sent");
    tokio::spawn(broker.welcome(Welcome::default()).await.serve());
    store.wait_connected().await.expect("granted");
    assert_eq!(store.get("k").await, Ok(None));
    store.shutdown().await;
}
